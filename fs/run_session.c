/* See run_session.h. */
#include "fs/run_session.h"

#include "core/buf.h"
#include "core/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LIST_MAX = 256 /* Of the mounts that an error names. */
};

/* The mounts that were met, of which a session is in some. */
struct mounts {
    const char *id;
    struct buf first; /* That has it. */
    struct buf all;   /* That have it. */
    dev_t dev;        /* Of the first: another place of it is no other. */
    unsigned holders;
    unsigned count;
};

static bool is_session(int dir)
{
    return faccessat(dir, "exec.json", F_OK, 0) == 0 &&
           faccessat(dir, "execs", F_OK, 0) == 0;
}

static int open_dir(const char *path, int *out, struct err *err)
{
    AUTO_FD int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0) {
        return err_errno(err, "session '%.300s'", path);
    }
    if (!is_session(dir)) {
        return err_set(err, ENOENT, "'%.300s' is not a session's directory",
                       path);
    }
    *out = TAKE_FD(dir);
    return 0;
}

static int open_id(const char *mount, const char *id, int *out, struct err *err)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/sessions/%s", mount, id);

    if (n < 0 || (size_t)n >= sizeof(path)) {
        return err_set(err, ENAMETOOLONG, "the session's path is too long");
    }
    return open_dir(path, out, err);
}

/* ---- The only mount that has it ---- */

static bool is_ours(const struct mntent *entry)
{
    const char *user = hasmntopt(entry, "user_id");

    return strcmp(entry->mnt_type, "fuse.sessionfs") == 0 && user &&
           strtoul(user + strlen("user_id="), NULL, 10) == getuid();
}

/* Only what has sessions counts: a dead daemon's mount does not, nor a mount
 * of something inside of another. */
static int meet(struct mounts *mounts, const char *path)
{
    char place[PATH_MAX];
    struct stat st;
    int rc = 0;

    (void)snprintf(place, sizeof(place), "%s/sessions", path);
    if (stat(place, &st) < 0) {
        return 0;
    }
    mounts->count++;
    (void)snprintf(place, sizeof(place), "%s/sessions/%s", path, mounts->id);
    if (faccessat(AT_FDCWD, place, F_OK, AT_SYMLINK_NOFOLLOW) < 0 ||
        (mounts->holders && st.st_dev == mounts->dev)) {
        return 0;
    }
    if (mounts->holders++ == 0) {
        mounts->dev = st.st_dev;
        rc = buf_printf(&mounts->first, "%s", path);
    }
    if (rc == 0) {
        rc = buf_printf(&mounts->all, " %s", path);
    }
    return rc == -EFBIG ? 0 : rc;
}

static int meet_all(struct mounts *mounts, struct err *err)
{
    FILE *table = setmntent("/proc/self/mounts", "re");
    const struct mntent *entry;
    int rc = 0;

    if (!table) {
        return err_errno(err, "/proc/self/mounts");
    }
    for (entry = getmntent(table); entry && rc == 0; entry = getmntent(table)) {
        if (is_ours(entry)) {
            rc = meet(mounts, entry->mnt_dir);
        }
    }
    (void)endmntent(table);
    return rc < 0 ? err_set(err, -rc, "out of memory") : 0;
}

static int open_in_only(const char *id, int *out, struct err *err)
{
    struct mounts mounts = {
        .id = id,
        .first = BUF_INIT(PATH_MAX),
        .all = BUF_INIT(LIST_MAX),
    };
    int rc = meet_all(&mounts, err);

    if (rc == 0 && mounts.count == 0) {
        rc = err_set(err, ENOENT,
                     "'%.64s' is no session's directory, and nothing is "
                     "mounted to look up an id in",
                     id);
    } else if (rc == 0 && mounts.holders == 0) {
        rc = err_set(err, ENOENT, "no mount has a session '%.64s'", id);
    } else if (rc == 0 && mounts.holders > 1) {
        rc = err_set(err, ENOTUNIQ,
                     "--mount must say which session '%.64s' is meant:%s", id,
                     buf_str(&mounts.all));
    } else if (rc == 0) {
        rc = open_id(buf_str(&mounts.first), id, out, err);
    }
    buf_done(&mounts.first);
    buf_done(&mounts.all);
    return rc;
}

int run_session_open(const char *name, const char *mount, int *out,
                     struct err *err)
{
    bool is_path =
        strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    struct err none = ERR_INIT;

    if (is_path) {
        return open_dir(name, out, err);
    }
    if (name[0] == '\0') {
        return err_set(err, ENOENT, "the session's name is empty");
    }
    if (!mount && open_dir(name, out, &none) == 0) {
        return 0;
    }
    mount = mount ? mount : getenv("SESSIONFS_MOUNT");
    return mount && *mount ? open_id(mount, name, out, err)
                           : open_in_only(name, out, err);
}
