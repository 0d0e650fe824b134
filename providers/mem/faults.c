/*
 * Faults of the provider `mem`. SESSIONFS_MEM_CONTROL names a directory. A
 * file OP there is about each call of that operation, a file OP@ID only about
 * those of the session with that id. Its text is one of
 *
 *     errno NAME   the call fails, as with `errno ENOSPC`
 *     delay MS     it takes that much longer
 *     stuck        it takes until the file is gone
 *     crash        the process kills itself, before the operation
 *
 * and deadline and token end every wait. The operations are: create resume
 * pause destroy status exec, those on checkpoints: checkpoint restore fork drop
 * open list_checkpoints changes, and those on files: stat list create_file
 * make_dir remove rename symlink read_link set_attr read write link statfs tree
 * get put.
 *
 * A file lost@ID makes the sandbox vanish behind the daemon's back, paused@ID
 * stops it, at the next operation on it; the file is removed then.
 */
#include "providers/mem/mem.h"

#include "core/cleanup.h"
#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 10, /* How often a stuck call looks. */
    ERRNO_MOST = 200,
};

/* Reads the text of a fault; false where there is none. */
static bool read_fault(const struct mem *mem, const char *op, const char *id,
                       char *out, size_t size)
{
    AUTO_FD int fd = -1;
    char path[PATH_MAX];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "%s/%s%s%s", mem->control, op,
                   id ? "@" : "", id ? id : "");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    n = read(fd, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return true;
}

static int fail_as(const char *name, const char *op, struct err *err)
{
    size_t len = strcspn(name, " \n");

    for (int code = 1; code < ERRNO_MOST; code++) {
        const char *known = strerrorname_np(code);

        if (known && strlen(known) == len && strncmp(known, name, len) == 0) {
            return err_set(err, code, "%s was told to fail", op);
        }
    }
    return err_set(err, EINVAL, "%s was told to fail in an unknown way", op);
}

static int wait_ms(int64_t ms, const struct limits *limits, struct err *err)
{
    int64_t until = clock_deadline(ms);
    struct limits mine = *limits;
    bool ours = until < limits->deadline_ms;
    int rc;

    mine.deadline_ms = ours ? until : limits->deadline_ms;
    rc = limits_wait(&mine, -1, 0, err);
    if (rc == -ETIMEDOUT && ours) {
        err_clear(err);
        return 0;
    }
    return rc;
}

static int obey(struct mem *mem, const char *op, const char *id,
                const struct limits *limits, struct err *err)
{
    char text[128];
    int rc = 0;

    if (!read_fault(mem, op, id, text, sizeof(text))) {
        return 0;
    }
    if (strncmp(text, "errno ", 6) == 0) {
        return fail_as(text + 6, op, err);
    }
    if (strncmp(text, "delay ", 6) == 0) {
        return wait_ms(strtol(text + 6, NULL, 10), limits, err);
    }
    if (strncmp(text, "crash", 5) == 0) {
        (void)raise(SIGKILL);
    }
    while (rc == 0 && strncmp(text, "stuck", 5) == 0 &&
           read_fault(mem, op, id, text, sizeof(text))) {
        rc = wait_ms(LOOK_MS, limits, err);
    }
    return rc;
}

/* Whether a file NAME@ID was there; it is removed. */
static bool consume(const struct mem *mem, const char *name, const char *id)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/%s@%s", mem->control, name, id);
    return unlink(path) == 0;
}

static void drift(struct mem *mem, const struct sandbox *sandbox)
{
    bool lost = consume(mem, "lost", sandbox->id);
    bool paused = consume(mem, "paused", sandbox->id);
    struct mem_box *box;

    if (!lost && !paused) {
        return;
    }
    mem_end_commands(mem, sandbox->number, COMMAND_LOST);
    mutex_lock(&mem->lock);
    box = mem_find(mem, sandbox);
    if (box && lost) {
        mem_box_drop(mem, box);
    } else if (box) {
        box->paused = true;
    }
    mutex_unlock(&mem->lock);
}

int mem_fault(struct mem *mem, const char *op, const struct sandbox *sandbox,
              const struct limits *limits, struct err *err)
{
    int rc;

    if (!mem->control) {
        return 0;
    }
    drift(mem, sandbox);
    rc = obey(mem, op, NULL, limits, err);
    return rc < 0 ? rc : obey(mem, op, sandbox->id, limits, err);
}
