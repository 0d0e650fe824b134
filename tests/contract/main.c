/*
 * The contract suite: what core may expect of any provider.
 * usage: contract_suite PROVIDER; skipped where `local` cannot be had.
 */
#include "tests/contract/bench.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SKIPPED = 77
};

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 2) {
        bench_use(argv[1]);
    }
    if (!bench_ops()) {
        (void)fprintf(stderr, "usage: %s PROVIDER\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "local") == 0 && geteuid() != 0) {
        (void)fprintf(stderr, "only root can make sandboxes\n");
        return SKIPPED;
    }
    failed += suite_life();
    failed += suite_exec();
    failed += suite_ends();
    failed += suite_root();
    return failed ? 1 : 0;
}
