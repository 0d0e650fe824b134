/*
 * The contract suite: what core may expect of any provider.
 * usage: contract_suite PROVIDER [CONFIG]; skipped where `local` cannot be had.
 * With CONTRACT_QUICK in the environment what takes long is left out.
 */
#include "tests/contract/bench.h"
#include "tests/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SKIPPED = 77
};

/* A machine may refuse sandboxes to a user who is not root. */
static bool can_open(void)
{
    struct bench bench = {.dir = ""};
    struct err err = ERR_INIT;
    int rc = loop_new(&bench.loop, &err);

    scratch_make(bench.dir, sizeof(bench.dir));
    if (rc == 0) {
        bench.env.state_dir = bench.dir;
        bench.env.loop = bench.loop;
        rc = provider_open(bench_ops(), &bench.env, &bench.provider, &err);
        if (rc == 0) {
            provider_close(bench.provider);
        }
        loop_free(bench.loop);
    }
    scratch_remove(bench.dir);
    if (rc < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
    }
    return rc == 0 || geteuid() == 0;
}

int main(int argc, char **argv)
{
    int failed = 0;

    if (argc == 2 || argc == 3) {
        bench_use(argv[1]);
    }
    if (argc == 3) {
        bench_configure(argv[2]);
    }
    if (!bench_ops()) {
        (void)fprintf(stderr, "usage: %s PROVIDER [CONFIG]\n", argv[0]);
        return 2;
    }
    if (!can_open()) {
        return SKIPPED;
    }
    failed += suite_life();
    failed += suite_exec();
    failed += getenv("CONTRACT_QUICK") ? 0 : suite_ends();
    failed += suite_root();
    return failed ? 1 : 0;
}
