/* Workspaces on disk: the directories that they are made of. See volume.h. */
#include "providers/local/volume_priv.h"

#include "core/cleanup.h"
#include "providers/local/remove.h"
#include "providers/local/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    REMOVE_TRIES = 20,
    REMOVE_STEP_MS = 5
};

int volume_dir(const struct sandbox *sandbox, struct err *err)
{
    int fd = open(sandbox->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? err_errno(err, "the sandbox's directory") : fd;
}

int volume_below(int dir, const char *name, struct err *err)
{
    int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? err_errno(err, "the workspace's '%s'", name) : fd;
}

bool volume_has(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int volume_give_dir(int dir, const char *name, struct link_ids ids,
                    struct err *err)
{
    if (mkdirat(dir, name, 0755) < 0) {
        return errno == EEXIST ? 0 : err_errno(err, "cannot make '%s'", name);
    }
    /* Our umask is not the sandbox's. */
    if (fchownat(dir, name, ids.user, ids.group, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(dir, name, 0755, 0) < 0) {
        return err_errno(err, "cannot give away '%s'", name);
    }
    return 0;
}

int volume_own_dir(int dir, const char *name, struct err *err)
{
    return mkdirat(dir, name, 0700) < 0 && errno != EEXIST
               ? err_errno(err, "cannot make '%s'", name)
               : 0;
}

void volume_name_work(const struct head *head, char out[HEAD_NAME_SIZE])
{
    if (head->upper) {
        (void)snprintf(out, HEAD_NAME_SIZE, VOLUME_WORK ".%" PRIu64,
                       head->upper);
    } else {
        (void)snprintf(out, HEAD_NAME_SIZE, VOLUME_WORK);
    }
}

int volume_fresh_work(int dir, const struct head *head,
                      const struct limits *limits, struct err *err)
{
    char name[HEAD_NAME_SIZE];
    int rc;

    volume_name_work(head, name);
    rc = remove_tree(dir, name, limits, err);
    if (rc == 0) {
        rc = volume_own_dir(dir, name, err);
    }
    return rc == 0 ? volume_below(dir, name, err) : rc;
}

/* ---- Looking ---- */

static bool is_there(int dir, const struct head *head)
{
    char upper[HEAD_NAME_SIZE];

    head_upper(head, upper);
    return head->seal || volume_has(dir, upper) ||
           volume_has(dir, VOLUME_PLAIN);
}

int volume_check(const struct sandbox *sandbox, struct err *err)
{
    AUTO_FD int dir = open(sandbox->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct head was = {.upper = UINT64_MAX};
    struct head head = {0};
    int rc = 0;

    if (dir < 0 && errno != ENOENT) {
        return err_errno(err, "the sandbox's directory");
    }
    /* It may be sealed meanwhile. */
    while (dir >= 0 && rc == 0 && memcmp(&head, &was, sizeof(head)) != 0) {
        was = head;
        rc = head_read(dir, sandbox->number, &head, err);
        if (rc == 0 && is_there(dir, &head)) {
            return 0;
        }
    }
    return rc < 0 ? rc : err_set(err, ESTALE, "the workspace is gone");
}

int volume_open_written(const char *dir)
{
    AUTO_FD int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char upper[HEAD_NAME_SIZE] = "";
    const char *const names[] = {upper, VOLUME_PLAIN};
    struct err ignored = ERR_INIT;
    struct head head;
    int fd = -1;

    if (at >= 0 && head_read(at, 0, &head, &ignored) == 0) {
        head_upper(&head, upper);
    }
    for (size_t i = 0; at >= 0 && fd < 0 && i < ARRAY_SIZE(names); i++) {
        fd = openat(at, names[i],
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    return fd;
}

/* ---- Removal ---- */

/* Under another name it is no workspace any more, half removed or not. */
static int rename_away(int dir, const char *name, const struct limits *limits,
                       struct err *err)
{
    int rc = remove_tree(dir, VOLUME_REMOVED, limits, err);

    if (rc < 0 || !volume_has(dir, name)) {
        return rc;
    }
    if (renameat(dir, name, dir, VOLUME_REMOVED) < 0) {
        return err_errno(err, "the workspace");
    }
    return remove_tree(dir, VOLUME_REMOVED, limits, err);
}

/* A mount that was given up may still be coming about in it. */
static int remove_work(int dir, const char *name, const struct limits *limits,
                       struct err *err)
{
    int rc = remove_tree(dir, name, limits, err);

    for (int i = 0; rc == -ENOTEMPTY && i < REMOVE_TRIES; i++) {
        (void)poll(NULL, 0, REMOVE_STEP_MS);
        err_clear(err);
        rc = remove_tree(dir, name, limits, err);
    }
    return rc;
}

int volume_clear(int dir, const struct head *head, const struct limits *limits,
                 struct err *err)
{
    char upper[HEAD_NAME_SIZE];
    char work[HEAD_NAME_SIZE];
    int rc;

    head_upper(head, upper);
    volume_name_work(head, work);
    rc = rename_away(dir, upper, limits, err);
    if (rc == 0) {
        rc = rename_away(dir, VOLUME_PLAIN, limits, err);
    }
    if (rc == 0) {
        rc = remove_work(dir, work, limits, err);
    }
    return rc == 0 ? remove_tree(dir, VOLUME_LOWER, limits, err) : rc;
}
