/* Threads as /proc shows them. See task.h. */
#include "fs/task.h"

#include "core/cleanup.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    FLAG_EXITING = 0x4, /* PF_EXITING, in field 9. */
    FIELD_FLAGS = 9,
    FIELD_CPU = 39,
    FIELD_EXIT_CODE = 52,
    SIGNAL_BITS = 0x7f, /* Of the exit code. */
};

static bool read_proc(pid_t tid, const char *file, char *out, size_t size)
{
    AUTO_FD int fd = -1;
    char path[64];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, out, size - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    return true;
}

/* An exiting thread gives its memory back before it closes its files. */
static bool has_memory(const char *status)
{
    const char *after = strstr(status, "\nThreads:");

    return !after || strstr(status, "\nVmSize:");
}

static void read_stat(pid_t tid, struct task *out)
{
    char text[2048];

    if (read_proc(tid, "stat", text, sizeof(text))) {
        (void)task_parse_stat(text, out);
    }
}

/*
 * `stat` of a thread in execve is read only once that has closed its files, and
 * one of those may be what the caller answers for: who is not exiting is told
 * by `status`, which waits for nothing.
 */
void task_look(pid_t tid, struct task *out)
{
    char text[8192];

    *out = (struct task){.cpu = -1};
    if (read_proc(tid, "status", text, sizeof(text)) && !has_memory(text)) {
        read_stat(tid, out);
    }
}

int task_cpu(pid_t tid)
{
    struct task task = {.cpu = -1};

    read_stat(tid, &task);
    return task.cpu;
}

/* The program's name, field 2, may hold blanks and brackets: the fields are
 * counted from the last bracket on. */
bool task_parse_stat(const char *stat, struct task *out)
{
    const char *at = strrchr(stat, ')');
    uintmax_t flags = 0;
    uintmax_t cpu = 0;
    int field = 2;

    while (at && field < FIELD_EXIT_CODE) {
        at = strchr(at, ' ');
        if (at) {
            at++;
            field++;
        }
        if (at && field == FIELD_FLAGS) {
            flags = strtoumax(at, NULL, 10);
        }
        if (at && field == FIELD_CPU) {
            cpu = strtoumax(at, NULL, 10);
        }
    }
    if (!at) {
        return false;
    }
    out->cpu = (int)cpu;
    out->exiting = (flags & FLAG_EXITING) != 0;
    out->killed = out->exiting && (strtoumax(at, NULL, 10) & SIGNAL_BITS) != 0;
    return true;
}

bool task_interrupted(pid_t tid)
{
    char text[4096];

    return !read_proc(tid, "status", text, sizeof(text)) ||
           task_parse_interrupted(text);
}

/* A line `NAME:\tHEX` of the text. */
static bool signal_set(const char *status, const char *name, uint64_t *out)
{
    const char *at = strstr(status, name);

    return at && sscanf(at + strlen(name), "%" SCNx64, out) == 1;
}

bool task_parse_interrupted(const char *status)
{
    static const int ending[] = {SIGKILL, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    uint64_t thread = 0;
    uint64_t process = 0;
    uint64_t blocked = 0;
    uint64_t due;

    if (!signal_set(status, "\nSigPnd:", &thread) ||
        !signal_set(status, "\nShdPnd:", &process) ||
        !signal_set(status, "\nSigBlk:", &blocked)) {
        return true;
    }
    due = (thread | process) & ~blocked;
    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
        if (due & (UINT64_C(1) << (ending[i] - 1))) {
            return true;
        }
    }
    return false;
}

bool task_readable(uid_t uid)
{
    return geteuid() == 0 || uid == geteuid();
}
