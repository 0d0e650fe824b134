/*
 * A provider whose sandbox is a directory of this machine, and which has but
 * the slots that core/files_over_exec needs: a shell of some kind, and whole
 * files.
 */
#ifndef SESSIONFS_TESTS_SHELL_PROVIDER_H
#define SESSIONFS_TESTS_SHELL_PROVIDER_H

#include "core/files_over_exec.h"

/* A shell and the tools that its scripts find. */
struct shell_kind {
    const char *name;
    const char *shell; /* The program that is `sh`. */
    const char *tools; /* A program that is all tools; NULL: PATH's. */
};

struct shell_provider {
    struct provider base; /* First. */
    const struct shell_kind *kind;
    char dir[256];   /* The workspace. */
    char tools[256]; /* What is PATH. */
    struct sandbox sandbox;
    struct instance instance;
    struct cancel never;
    struct limits limits;
    int64_t until_ms; /* When the last script was to end. */
    unsigned runs;    /* Scripts so far, */
    unsigned files;   /* and whole files. */
    struct stat made; /* What the last one made. */
    size_t cut;       /* Bytes of a script's input that come; 0: all. */
    int broken;       /* Errno of all whole files; 0: none. */
};

/* In a test: a slot with limits last, or behind the path. */
#define CALL(slot, ...)                                                        \
    files_over_exec.slot(&sh->base, &sh->sandbox, __VA_ARGS__, &sh->limits,    \
                         &err)
/* A slot that tells what it has made. */
#define MAKE(slot, ...)                                                        \
    files_over_exec.slot(&sh->base, &sh->sandbox, __VA_ARGS__, &sh->limits,    \
                         &sh->made, &err)
#define CALL_TO(slot, path, ...)                                               \
    files_over_exec.slot(&sh->base, &sh->sandbox, path, &sh->limits,           \
                         __VA_ARGS__, &err)

/** @return whether there is another kind of shell, which is taken next */
bool shell_next_kind(void);
/** cmocka set-up. @param state gets a struct shell_provider @return 0 */
int shell_setup(void **state);
/** cmocka tear-down. @param state of cmocka @return 0 */
int shell_teardown(void **state);
#define SHELL_TEST(name)                                                       \
    cmocka_unit_test_setup_teardown(name, shell_setup, shell_teardown)

/** @param sh the provider @param path in its workspace @return it on this
 *  machine, until the next call */
char *host(struct shell_provider *sh, const char *path);
/** @param sh the provider @param path a new file @param text its content */
void put_text(struct shell_provider *sh, const char *path, const char *text);
/** @param sh the provider @param path a file @param text it must hold */
void expect_text(struct shell_provider *sh, const char *path, const char *text);
/** @param data borrowed @param size bytes @return a file with them */
int memory_file(const void *data, size_t size);
/** @param a attributes @param b must be the same */
void same_attributes(const struct stat *a, const struct stat *b);
/** Puts a file and checks what is told of it. @param sh the provider
 *  @param path where @param data borrowed @param size bytes
 *  @param put how; its fd is set @return what put said */
int put(struct shell_provider *sh, const char *path, const char *data,
        size_t size, struct provider_put *put);

#endif
