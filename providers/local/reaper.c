/*
 * A command's processes where no cgroup holds them. See keeper.h.
 *
 * What a command leaves behind becomes the child of its reaper, whatever it
 * does: so all that is below a reaper is its command's. A reaper has the
 * commands' id and can be killed by one; what was below it is process 1's then,
 * which knows its own children and kills the others.
 */
#include "providers/local/keeper.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
    FIRST_FD = 3, /* Behind the standard streams. */
    MANY = 256,   /* Of /proc's names; fewer do not outrun us. */
    TRIES = 20,   /* Until all have stopped, a millisecond and more each. */
};

struct process {
    pid_t pid;
    pid_t parent;
    char state; /* As ps shows it. */
    bool below; /* It is one of those that are sought. */
};

struct table {
    struct process *list; /* By ascending pids. */
    size_t count;
    size_t room;
};

/* ---- The processes of the sandbox ---- */

static bool read_process(int proc, const char *name, struct process *out)
{
    char path[32];
    char text[512];
    AUTO_FD int fd = -1;
    const char *at;
    int parent;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%.16s/stat", name);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0) {
        return false;
    }
    text[n] = '\0';
    /* A program's name may hold anything. */
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %c %d", &out->state, &parent) != 2) {
        return false;
    }
    out->pid = (pid_t)strtol(name, NULL, 10);
    out->parent = parent;
    out->below = false;
    return out->pid > 1;
}

static bool add(struct table *table, const struct process *process)
{
    void *wide = array_grow(table->list, table->count, &table->room,
                            sizeof(*table->list));

    if (!wide) {
        return false;
    }
    table->list = wide;
    table->list[table->count++] = *process;
    return true;
}

/* As many as can be had; the caller looks again. */
static void list_processes(struct table *out)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry = dir ? readdir(dir) : NULL;

    memset(out, 0, sizeof(*out));
    while (entry) {
        struct process process;

        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            read_process(dirfd(dir), entry->d_name, &process) &&
            !add(out, &process)) {
            break;
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
}

static int by_pid(const void *a, const void *b)
{
    const struct process *left = a;
    const struct process *right = b;

    return (left->pid > right->pid) - (left->pid < right->pid);
}

static bool is_below(const struct table *table, pid_t pid)
{
    const struct process key = {.pid = pid};
    const struct process *found = NULL;

    if (table->count > 0) {
        found = bsearch(&key, table->list, table->count, sizeof(key), by_pid);
    }
    return found && found->below;
}

/* Marks the descendants of those that are marked, and of one more. */
static void mark_descendants(struct table *table, pid_t top)
{
    bool more = true;

    while (more) {
        more = false;
        for (size_t i = 0; i < table->count; i++) {
            struct process *process = &table->list[i];

            if (!process->below &&
                (process->parent == top || is_below(table, process->parent))) {
                process->below = true;
                more = true;
            }
        }
    }
}

/* Tells how many there were that could take it. */
static int signal_marked(const struct table *table, int signal)
{
    int count = 0;

    for (size_t i = 0; i < table->count; i++) {
        const struct process *process = &table->list[i];

        if (process->below && process->state != 'Z' &&
            kill(process->pid, signal) == 0) {
            count++;
        }
    }
    return count;
}

int reaper_signal(pid_t reaper, int signal)
{
    struct table table;
    int count;

    list_processes(&table);
    mark_descendants(&table, reaper);
    count = signal_marked(&table, signal);
    free(table.list);
    return count;
}

/* ---- Ends ---- */

static bool contains(const pid_t *list, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i] == pid) {
            return true;
        }
    }
    return false;
}

static bool are_many(void)
{
    DIR *dir = opendir("/proc");
    int count = 0;

    while (dir && count <= MANY && readdir(dir)) {
        count++;
    }
    if (dir) {
        (void)closedir(dir);
    }
    return count > MANY;
}

static int count_running(const struct table *table)
{
    int count = 0;

    for (size_t i = 0; i < table->count; i++) {
        /* D: it waits for another one, or stops as soon as it can. */
        count += !strchr("TtZXD", table->list[i].state);
    }
    return count;
}

/* Stops all and lists them once none can have a child any more. */
static void stop_and_list(struct table *out)
{
    const struct timespec ts = {.tv_nsec = 1000 * 1000};

    (void)kill(-1, SIGSTOP);
    list_processes(out);
    for (int i = 0; i < TRIES && count_running(out) > 0; i++) {
        (void)nanosleep(&ts, NULL);
        free(out->list);
        list_processes(out);
    }
}

void reaper_end(pid_t reaper, int signal, bool again)
{
    struct table table;
    bool stop = again || are_many();

    if (stop) {
        stop_and_list(&table);
    } else {
        list_processes(&table);
    }
    mark_descendants(&table, reaper);
    (void)signal_marked(&table, signal);
    if (stop) {
        (void)kill(-1, SIGCONT);
    } else {
        (void)signal_marked(&table, SIGCONT);
        (void)kill(reaper, SIGCONT);
    }
    free(table.list);
}

void reaper_kill_strays(const pid_t *reapers, size_t count)
{
    struct table table;

    stop_and_list(&table);
    for (size_t i = 0; i < table.count; i++) {
        struct process *process = &table.list[i];

        process->below =
            process->parent == 1 && !contains(reapers, count, process->pid);
    }
    mark_descendants(&table, -1);
    (void)signal_marked(&table, SIGKILL);
    free(table.list);
    (void)kill(-1, SIGCONT);
}

int reaper_count_running(void)
{
    struct table table;
    int count;

    list_processes(&table);
    count = count_running(&table);
    free(table.list);
    return count;
}

/* ---- The reaper itself ---- */

int reaper_become(struct err *err)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    for (int i = 1; i < NSIG; i++) {
        if (i != SIGCHLD) {
            (void)sigaction(i, &ignore, NULL);
        }
    }
    (void)prctl(PR_SET_NAME, "reaper");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        return err_errno(err, "PR_SET_CHILD_SUBREAPER");
    }
    return 0;
}

void reaper_serve(pid_t pid, int reply)
{
    struct wire wire = {.type = WIRE_EXITED, .pid = pid};
    int status;
    pid_t ended;

    if (dup2(reply, FIRST_FD) < 0 ||
        syscall(SYS_close_range, FIRST_FD + 1U, ~0U, 0U) < 0) {
        _exit(1);
    }
    for (;;) {
        ended = waitpid(-1, &status, 0);
        if (ended < 0 && errno == ECHILD) {
            _exit(0);
        }
        if (ended == pid) {
            wire.code = status;
            wire.at_us = clock_wall_us();
            (void)!write(FIRST_FD, &wire, sizeof(wire));
            pid = 0;
            /* The kernel is faster where nobody asks for the others. */
            (void)signal(SIGCHLD, SIG_IGN);
        }
    }
}
