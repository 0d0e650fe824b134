/* The tests of `local` that no other provider has. Root only. */
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SKIPPED = 77
};

void local_beside(const char *name, char *path)
{
    ssize_t n = readlink("/proc/self/exe", path, BENCH_PATH - 1);
    char *slash;

    path[n < 0 ? 0 : n] = '\0';
    slash = strrchr(path, '/');
    if (slash) {
        (void)snprintf(slash + 1, (size_t)(path + BENCH_PATH - slash - 1), "%s",
                       name);
    }
}

/* An argument is a pattern of the tests to run. */
int main(int argc, char **argv)
{
    if (geteuid() != 0) {
        (void)fprintf(stderr, "only root can make sandboxes\n");
        return SKIPPED;
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    if (bench_own_mounts() < 0) {
        (void)fprintf(stderr, "cannot have mounts of its own\n");
        return 1;
    }
    /* As a daemon that keeps its state to itself. */
    (void)umask(077);
    bench_use("local");
    return suite_local_escapes() + suite_local_isolation() +
                   suite_local_leftovers() + suite_local_adopt() +
                   suite_local_keeper()
               ? 1
               : 0;
}
