/*
 * Makes all attempts, inside a sandbox.
 * usage: local_attempt PID PORT ABSTRACT FILE
 * Prints a line for each that was allowed.
 */
#include "tests/contract/local_attempts.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a process of its own, so that none spoils the next. */
static int allowed(const struct attempt *attempt, const struct attempt_ctx *ctx)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        _exit(attempt->try(ctx) == 0 ? 0 : 1);
    }
    /* One that the kernel kills for it was not allowed either. */
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

int main(int argc, char **argv)
{
    struct attempt_ctx ctx;
    int count = 0;

    if (argc != 5) {
        return 2;
    }
    ctx.pid = atoi(argv[1]);
    ctx.port = atoi(argv[2]);
    ctx.abstract = argv[3];
    ctx.file = argv[4];
    for (size_t i = 0; attempt_tables[i]; i++) {
        for (const struct attempt *at = attempt_tables[i]; at->name; at++) {
            if (allowed(at, &ctx)) {
                (void)printf("%s\n", at->name);
            }
            count++;
        }
    }
    (void)printf("%d attempts\n", count);
    return 0;
}
