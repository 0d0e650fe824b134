/*
 * Makes all attempts, inside a sandbox.
 * usage: local_attempt PID PORT KEY ABSTRACT FILE
 * Prints a line for each: its name, a tab, what became of it.
 */
#include "tests/contract/local_attempts.h"

#include <stdio.h>
#include <stdlib.h>

static void try_all(const struct attempt *at, const struct attempt_ctx *ctx)
{
    for (; at->name; at++) {
        char result[ATTEMPT_RESULT];

        (void)attempt_try(at, ctx, NULL, result);
        (void)printf("%s\t%s\n", at->name, result);
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct attempt_ctx ctx = {.row = NULL};

    if (argc != 6) {
        return 2;
    }
    ctx.pid = atoi(argv[1]);
    ctx.port = atoi(argv[2]);
    ctx.key = atoi(argv[3]);
    ctx.abstract = argv[4];
    ctx.file = argv[5];
    for (size_t i = 0; attempt_tables[i]; i++) {
        try_all(attempt_tables[i], &ctx);
    }
    try_all(attempts_by_design, &ctx);
    return 0;
}
