/* How attempts are made, and functions that serve many of them. */
#include "tests/contract/local_attempts.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum {
    LONG_ENOUGH_S = 10,
    NO_WORD = 255,
};

int attempt_try(const struct attempt *attempt, const struct attempt_ctx *ctx,
                void (*enter)(void), char out[ATTEMPT_RESULT])
{
    struct attempt_ctx own = *ctx;
    int status = 0;
    const char *word;
    pid_t pid = fork();

    own.row = attempt;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONG_ENOUGH_S);
        if (enter) {
            enter();
        }
        errno = 0;
        if (attempt->try(&own) == 0) {
            _exit(0);
        }
        _exit(errno > 0 && errno < NO_WORD ? errno : NO_WORD);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
        (void)snprintf(out, ATTEMPT_RESULT, "killed");
        return 0;
    }
    word = status == 0 ? "allowed" : strerrorname_np(WEXITSTATUS(status));
    (void)snprintf(out, ATTEMPT_RESULT, "%s", word ? word : "refused");
    return status == 0;
}

int attempt_open(const struct attempt_ctx *ctx)
{
    return of_fd(open(ctx->row->text, (int)ctx->row->number | O_CLOEXEC));
}

int attempt_read(const struct attempt_ctx *ctx)
{
    int fd = open(ctx->row->text, O_RDONLY | O_CLOEXEC);
    char byte;
    ssize_t n;

    if (fd < 0) {
        return -1;
    }
    n = read(fd, &byte, 1);
    if (n == 0) {
        errno = ENODATA;
    }
    return after_close(fd, n == 1 ? 0 : -1);
}

int attempt_list(const struct attempt_ctx *ctx)
{
    DIR *dir = opendir(ctx->row->text);

    if (!dir) {
        return -1;
    }
    (void)closedir(dir);
    return 0;
}
