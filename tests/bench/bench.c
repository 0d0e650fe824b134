/*
 * Measures a mounted session against the same work without a mount, and prints
 * a table, or JSON. What is compared is measured in turns, so that both meet
 * the same machine; medians are compared.
 *
 * usage: bench [--quick] [--json] SESSION_DIRECTORY
 *
 * The bounds are for people to judge by, on a quiet machine. The exit status is
 * 1 where one is exceeded three times over, whatever else the machine did.
 */
#include "core/compiler.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    SAMPLES = 1000,
    SAMPLES_QUICK = 150,
    WARM_UP = 20,
    GETATTRS = 8,
    TOO_MUCH = 3, /* Times the bound. */
};

extern char **environ;

/* One that is compared: both functions do one piece of work. */
struct row {
    const char *name;
    const char *what;
    const char *base_what;
    double bound; /* Of the ratio. */
    void (*work)(int session);
    void (*base)(int session);
};

struct result {
    double us;
    double base_us;
    double ratio;
};

NORETURN static void fail(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* ---- The pieces of work ---- */

static void run_true(int session)
{
    static const char script[] = "true\n";
    ssize_t size = (ssize_t)strlen(script);
    int fd = openat(session, "exec", O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, script, (size_t)size) != size || close(fd) < 0) {
        fail("exec");
    }
}

static void spawn_true(void)
{
    static char name[] = "sh";
    static char option[] = "-c";
    static char script[] = "true";
    char *const argv[] = {name, option, script, NULL};
    int status = 0;
    pid_t pid;

    errno = posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ);
    if (errno || waitpid(pid, &status, 0) < 0 || status != 0) {
        fail("sh");
    }
}

/* By an open file, so that each is one request, of its attributes alone. */
static void get_attributes(int session)
{
    static int fd = -1;
    struct statx attr;

    if (fd < 0) {
        fd = openat(session, "status", O_PATH | O_CLOEXEC);
    }
    for (int i = 0; i < GETATTRS; i++) {
        if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_ALL,
                  &attr) < 0) {
            fail("status");
        }
    }
}

static void spawn_and_get_attributes(int session)
{
    spawn_true();
    get_attributes(session);
}

static const struct row rows[] = {
    {
        .name = "exec",
        .what = "echo true > exec",
        .base_what = "spawn sh -c true, 8 getattr",
        .bound = 4.0,
        .work = run_true,
        .base = spawn_and_get_attributes,
    },
};

/* ---- Measuring ---- */

static double now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static double measure(void (*work)(int session), int session)
{
    double before = now_us();

    work(session);
    return now_us() - before;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static struct result run_row(const struct row *row, int session, size_t count)
{
    static double work[SAMPLES];
    static double base[SAMPLES];
    struct result result;

    for (size_t i = 0; i < WARM_UP; i++) {
        row->work(session);
        row->base(session);
    }
    for (size_t i = 0; i < count; i++) {
        work[i] = measure(row->work, session);
        base[i] = measure(row->base, session);
    }
    result.us = median(work, count);
    result.base_us = median(base, count);
    result.ratio = result.us / result.base_us;
    return result;
}

/* ---- Telling ---- */

static void print_row(const struct row *row, const struct result *result)
{
    (void)printf("%-8s %-18s %8.0f us   %-28s %8.0f us   %6.2f   <= %.1f%s\n",
                 row->name, row->what, result->us, row->base_what,
                 result->base_us, result->ratio, row->bound,
                 result->ratio > row->bound ? "   over" : "");
}

static void print_json(const struct row *row, const struct result *result,
                       size_t count, bool first)
{
    (void)printf("%s\n  {\"name\": \"%s\", \"us\": %.1f, \"base_us\": %.1f, "
                 "\"ratio\": %.3f, \"bound\": %.1f, \"samples\": %zu}",
                 first ? "" : ",", row->name, result->us, result->base_us,
                 result->ratio, row->bound, count);
}

static bool run_all(int session, size_t count, bool json)
{
    bool bearable = true;
    double load = 0;

    (void)getloadavg(&load, 1);
    if (json) {
        (void)printf("{\"cpus\": %ld, \"load\": %.2f, \"rows\": [",
                     sysconf(_SC_NPROCESSORS_ONLN), load);
    } else {
        (void)printf("%ld processors, load %.2f, medians of %zu\n",
                     sysconf(_SC_NPROCESSORS_ONLN), load, count);
    }
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct result result = run_row(&rows[i], session, count);

        if (json) {
            print_json(&rows[i], &result, count, i == 0);
        } else {
            print_row(&rows[i], &result);
        }
        bearable = bearable && result.ratio <= TOO_MUCH * rows[i].bound;
    }
    if (json) {
        (void)printf("\n]}\n");
    }
    return bearable;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"quick", no_argument, NULL, 'q'},
        {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    size_t count = SAMPLES;
    bool json = false;
    int session;
    int flag;

    do {
        flag = getopt_long(argc, argv, "", options, NULL);
        json = json || flag == 'j';
        count = flag == 'q' ? SAMPLES_QUICK : count;
    } while (flag == 'j' || flag == 'q');
    if (flag == '?') {
        return 2;
    }
    session = optind + 1 == argc
                  ? open(argv[optind], O_PATH | O_DIRECTORY | O_CLOEXEC)
                  : -1;
    if (session < 0) {
        (void)fprintf(stderr,
                      "usage: bench [--quick] [--json] SESSION_DIRECTORY\n");
        return 2;
    }
    return run_all(session, count, json) ? 0 : 1;
}
