# One INTERFACE target carries what every target of the project compiles with.
add_library(project_options INTERFACE)
target_compile_definitions(project_options INTERFACE _GNU_SOURCE
    SESSIONFS_VERSION="${PROJECT_VERSION}")
target_include_directories(project_options INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(project_options INTERFACE Threads::Threads)
target_compile_options(project_options INTERFACE
    -fstack-protector-strong -fno-strict-aliasing
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
    -Wcast-qual -Wformat=2 -Wstrict-prototypes -Wmissing-prototypes
    -Wswitch-enum -Wvla -Wundef
    # Where snprintf's result is not looked at, a cut is what is wanted.
    $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation -Wlogical-op
        -Wduplicated-cond -Wduplicated-branches>
    $<$<C_COMPILER_ID:Clang>:-Wthread-safety -Wdocumentation>
    $<$<BOOL:${SESSIONFS_WERROR}>:-Werror>)
# gcc sees null dereferences that are not there once a sanitizer has rewritten
# the code, so that warning is left to the plain builds.
if(SESSIONFS_SANITIZE)
    target_compile_options(project_options INTERFACE
        -fsanitize=${SESSIONFS_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(project_options INTERFACE
        -fsanitize=${SESSIONFS_SANITIZE})
else()
    target_compile_options(project_options INTERFACE -Wnull-dereference)
endif()
