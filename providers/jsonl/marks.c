/* Marks of commands that may run. See jsonl.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "providers/jsonl/jsonl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME  "jsonl.marks"
#define START "SESSIONFS_COMMAND="

enum {
    TURN_MS = 50,          /* How often a waiter looks at its token. */
    MARKS_MAX = 64 * 1024, /* Bytes that surely go into one argument. */
};

/* A command that was not seen to end. */
struct lost {
    struct list link;
    char mark[MARK_SIZE];
};

/* ---- Files ---- */

/* The directory of marks; -ENOENT where there are none and none is made. */
static int open_marks(const char *dir, bool make)
{
    AUTO_FD int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int marks;

    if (fd < 0) {
        return -errno;
    }
    if (make && mkdirat(fd, NAME, 0700) < 0 && errno != EEXIST) {
        return -errno;
    }
    marks = openat(fd, NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return marks < 0 ? -errno : marks;
}

int mark_keep(const struct lease *lease, const char *mark, struct err *err)
{
    AUTO_FD int dir = open_marks(lease->dir, true);
    AUTO_FD int fd = -1;

    if (dir >= 0) {
        fd = openat(dir, mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    errno = dir < 0 ? -dir : errno;
    return fd < 0 ? err_errno(err, "cannot note that a command begins") : 0;
}

void mark_drop(const struct lease *lease, const char *mark)
{
    AUTO_FD int dir = open_marks(lease->dir, false);

    if (dir >= 0) {
        (void)unlinkat(dir, mark, 0);
    }
}

/* Calls a function with each mark. */
static int each_mark(int dir, int (*fn)(void *arg, int dir, const char *mark),
                     void *arg)
{
    AUTO_FD int copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *stream = fdopendir(copy);
    const struct dirent *entry = stream ? readdir(stream) : NULL;
    int rc = stream ? 0 : -errno;

    if (stream) {
        copy = -1; /* The stream's. */
    }

    while (entry && rc == 0) {
        if (strncmp(entry->d_name, START, strlen(START)) == 0 &&
            strlen(entry->d_name) < MARK_SIZE) {
            rc = fn(arg, dir, entry->d_name);
        }
        entry = readdir(stream);
    }
    if (stream) {
        (void)closedir(stream);
    }
    return rc;
}

static int find_one(void *arg, int dir, const char *mark)
{
    (void)arg;
    (void)dir;
    (void)mark;
    return -EEXIST;
}

bool jsonl_left(struct provider *provider, const char *dir)
{
    AUTO_FD int marks = open_marks(dir, false);

    (void)provider;
    return marks >= 0 && each_mark(marks, find_one, NULL) == -EEXIST;
}

static int remove_one(void *arg, int dir, const char *mark)
{
    (void)arg;
    (void)unlinkat(dir, mark, 0);
    return 0;
}

void marks_remove(const struct sandbox *sandbox)
{
    AUTO_FD int dir = open_marks(sandbox->dir, false);

    if (dir >= 0) {
        (void)!each_mark(dir, remove_one, NULL);
    }
}

/* ---- What an earlier daemon has left ---- */

static int add_lost(void *arg, int dir, const char *mark)
{
    struct list *list = arg;
    struct lost *lost = calloc(1, sizeof(*lost));

    (void)dir;
    if (!lost) {
        return -ENOMEM;
    }
    (void)snprintf(lost->mark, sizeof(lost->mark), "%s", mark);
    list_add(list, &lost->link);
    return 0;
}

int marks_find(struct lease *lease, struct err *err)
{
    AUTO_FD int dir = open_marks(lease->dir, false);
    int rc = dir < 0 ? dir : each_mark(dir, add_lost, &lease->lost);

    return rc < 0 && rc != -ENOENT
               ? err_set(err, -rc, "cannot look for commands that were left")
               : 0;
}

static void free_all(struct list *list)
{
    for (struct list *node = list_pop(list); node; node = list_pop(list)) {
        free(container_of(node, struct lost, link));
    }
}

void marks_done(struct lease *lease)
{
    free_all(&lease->lost);
}

/* Takes as many as go into one call. */
static int take_some(struct list *from, struct list *to, struct buf *marks)
{
    int rc = 0;

    for (struct list *node = list_pop(from); node && rc == 0;
         node = rc == 0 ? list_pop(from) : NULL) {
        struct lost *lost = container_of(node, struct lost, link);

        rc = buf_printf(marks, "%s-e %s", marks->size ? " " : "", lost->mark);
        list_add(rc == 0 ? to : from, node);
    }
    return marks->size ? 0 : rc;
}

/* Ends all of a list; those that are left in it were not ended. */
static int end_all(struct jsonl *jsonl, struct lease *lease, struct list *list,
                   const struct limits *limits, struct err *err)
{
    struct list some;
    int rc = 0;

    list_init(&some);
    while (rc == 0 && !list_empty(list)) {
        struct buf marks = BUF_INIT(MARKS_MAX);

        rc = take_some(list, &some, &marks);
        rc = rc < 0 ? err_no_memory(err)
                    : ending_now(jsonl, lease, buf_str(&marks), limits, err);
        buf_done(&marks);
        for (struct list *node = list_pop(&some); node;
             node = list_pop(&some)) {
            struct lost *lost = container_of(node, struct lost, link);

            if (rc < 0) {
                list_add(list, node);
                continue;
            }
            mark_drop(lease, lost->mark);
            free(lost);
        }
    }
    return rc;
}

/* Waits for who does it, or is the one. */
static int begin(struct jsonl *jsonl, struct lease *lease, struct list *out,
                 const struct limits *limits, struct err *err)
{
    static const char late[] = "commands of before are being ended";
    int rc = 0;

    mutex_lock(&jsonl->lock);
    while (lease->cleaning && rc == 0) {
        (void)cond_wait(&jsonl->closed, &jsonl->lock, clock_deadline(TURN_MS));
        rc = limits_check(limits, late, err);
    }
    while (rc == 0 && !list_empty(&lease->lost)) {
        list_add(out, list_pop(&lease->lost));
        lease->cleaning = true;
    }
    mutex_unlock(&jsonl->lock);
    return rc;
}

static void end(struct jsonl *jsonl, struct lease *lease, struct list *left)
{
    mutex_lock(&jsonl->lock);
    for (struct list *node = list_pop(left); node; node = list_pop(left)) {
        list_add(&lease->lost, node);
    }
    lease->cleaning = false;
    cond_broadcast(&jsonl->closed);
    mutex_unlock(&jsonl->lock);
}

int lease_clean(struct jsonl *jsonl, struct lease *lease,
                const struct limits *limits, struct err *err)
{
    struct list lost;
    int rc;

    list_init(&lost);
    rc = begin(jsonl, lease, &lost, limits, err);
    if (rc < 0 || list_empty(&lost)) {
        return rc;
    }
    rc = end_all(jsonl, lease, &lost, limits, err);
    end(jsonl, lease, &lost);
    return rc < 0 ? err_wrap(err, rc, "commands that were left running") : 0;
}
