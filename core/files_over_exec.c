/* Names and attributes by scripts. See files_over_exec.h. */
#include "core/files_over_exec.h"

#include "core/cleanup.h"
#include "core/files_over_exec_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

enum {
    AT_ONCE = 4
};

/* A script about one path. */
static int about(struct provider *provider, const struct sandbox *sandbox,
                 const struct limits *limits, const char *script,
                 const struct over_path *path, struct over *out)
{
    *out = (struct over){.provider = provider,
                         .sandbox = sandbox,
                         .limits = limits,
                         .script = script,
                         .args = {path->dir, path->name}};
    return 0;
}

/* The workspace itself cannot be made, removed or moved. */
static int check_path(const char *path, struct over_path *out, int code,
                      struct err *err)
{
    return path[0] ? over_split(path, out, err)
                   : err_set(err, code, "the workspace itself");
}

static int over_stat_path(struct provider *provider,
                          const struct sandbox *sandbox, const char *path,
                          const struct limits *limits, struct stat *out,
                          struct err *err)
{
    struct buf text = BUF_INIT(OVER_RECORD);
    struct over_path place;
    struct over over;
    const char *name;
    char *at;
    int rc = over_split(path, &place, err);

    if (rc < 0) {
        return rc;
    }
    about(provider, sandbox, limits, over_stat, &place, &over);
    rc = over_run(&over, &text, err);
    at = text.data;
    if (rc == 0 &&
        (!at || !over_record(&at, text.data + text.size, &name, out))) {
        rc = err_set(err, EIO, "the sandbox's stat makes no sense");
    }
    buf_done(&text);
    return rc;
}

/* ---- Making and removing ---- */

/* Runs a script that makes something, and then tells its attributes. */
static int make_with(struct provider *provider, const struct sandbox *sandbox,
                     const struct limits *limits, const char *script,
                     const char *path, const char *const more[2],
                     struct stat *now, struct err *err)
{
    struct buf text = BUF_INIT(OVER_RECORD);
    struct over_path place;
    struct over over;
    const char *name;
    char *at;
    int rc = check_path(path, &place, EEXIST, err);

    if (rc < 0) {
        return rc;
    }
    about(provider, sandbox, limits, script, &place, &over);
    over.args[2] = more[0];
    over.args[3] = more[1];
    rc = over_run(&over, &text, err);
    at = text.data;
    if (rc == 0 && (!at || !over_record(&at, at + text.size, &name, now))) {
        now->st_mode = 0; /* It is there; who wants to know asks. */
    }
    buf_done(&text);
    return rc;
}

static int over_create_file(struct provider *provider,
                            const struct sandbox *sandbox, const char *path,
                            mode_t mode, const struct limits *limits,
                            struct stat *now, struct err *err)
{
    char umask[8];
    char full[8] = "";
    const char *const more[2] = {umask, full};

    (void)snprintf(umask, sizeof(umask), "%03o", ~mode & 0777U);
    if (mode & 07111U) { /* A shell makes none that can be run. */
        (void)snprintf(full, sizeof(full), "%o", mode & 07777U);
    }
    return make_with(provider, sandbox, limits, over_create, path, more, now,
                     err);
}

static int over_make_dir_path(struct provider *provider,
                              const struct sandbox *sandbox, const char *path,
                              mode_t mode, const struct limits *limits,
                              struct stat *now, struct err *err)
{
    char text[8];
    const char *const more[2] = {text, mode & 07000U ? "special" : ""};

    (void)snprintf(text, sizeof(text), "%o", mode & 07777U);
    return make_with(provider, sandbox, limits, over_make_dir, path, more, now,
                     err);
}

static int over_symlink_path(struct provider *provider,
                             const struct sandbox *sandbox, const char *target,
                             const char *path, const struct limits *limits,
                             struct stat *now, struct err *err)
{
    const char *const more[2] = {target};

    return make_with(provider, sandbox, limits, over_symlink, path, more, now,
                     err);
}

static int over_remove_path(struct provider *provider,
                            const struct sandbox *sandbox, const char *path,
                            bool dir, const struct limits *limits,
                            struct err *err)
{
    struct over_path place;
    struct over over;
    int rc = check_path(path, &place, EEXIST, err);

    if (rc < 0) {
        return rc;
    }
    about(provider, sandbox, limits, over_remove, &place, &over);
    over.args[2] = dir ? "dir" : "";
    return over_do(&over, err);
}

/* ---- Two paths ---- */

static int do_both(struct provider *provider, const struct sandbox *sandbox,
                   const struct limits *limits, const char *script,
                   const char *const paths[2], const char *flag,
                   struct err *err)
{
    struct over_path from;
    struct over_path to;
    struct over over;
    int rc = check_path(paths[0], &from, EBUSY, err);

    if (rc == 0) {
        rc = check_path(paths[1], &to, EEXIST, err);
    }
    if (rc < 0) {
        return rc;
    }
    about(provider, sandbox, limits, script, &from, &over);
    over.args[2] = to.dir;
    over.args[3] = to.name;
    over.args[4] = flag;
    return over_do(&over, err);
}

static bool lies_in(const char *path, const char *dir)
{
    size_t size = strlen(dir);

    return strncmp(path, dir, size) == 0 && path[size] == '/';
}

static int over_rename_path(struct provider *provider,
                            const struct sandbox *sandbox, const char *from,
                            const char *to, unsigned flags,
                            const struct limits *limits, struct err *err)
{
    const char *const paths[2] = {from, to};
    bool exchange = flags == RENAME_EXCHANGE;
    const char *flag = flags == RENAME_NOREPLACE ? "n" : exchange ? "x" : "";

    if (lies_in(to, from) || (exchange && lies_in(from, to))) {
        return err_set(err, EINVAL, "a directory cannot go into itself");
    }
    if (flags && !flag[0]) {
        return err_set(err, EINVAL, "no such kind of rename");
    }
    return do_both(provider, sandbox, limits, over_rename, paths, flag, err);
}

static int over_link_path(struct provider *provider,
                          const struct sandbox *sandbox, const char *from,
                          const char *to, const struct limits *limits,
                          struct err *err)
{
    const char *const paths[2] = {from, to};

    return do_both(provider, sandbox, limits, over_link, paths, NULL, err);
}

static int over_read_link_path(struct provider *provider,
                               const struct sandbox *sandbox, const char *path,
                               const struct limits *limits, char *out,
                               size_t size, struct err *err)
{
    struct buf text = BUF_INIT(OVER_RECORD);
    struct over_path place;
    struct over over;
    int rc = check_path(path, &place, EINVAL, err);

    if (rc < 0) {
        return rc;
    }
    about(provider, sandbox, limits, over_read_link, &place, &over);
    rc = over_run(&over, &text, err);
    if (rc == 0 && (text.size < 2 || text.data[text.size - 1] != '\n' ||
                    strlen(text.data) != text.size)) {
        rc = err_set(err, EIO, "the sandbox's readlink makes no sense");
    }
    if (rc == 0 && text.size > size) {
        rc = err_set(err, ENAMETOOLONG, "the target is too long");
    }
    if (rc == 0) {
        memcpy(out, text.data, text.size);
        out[text.size - 1] = '\0';
    }
    buf_done(&text);
    return rc;
}

/* ---- Attributes ---- */

static int over_set_attr_path(struct provider *provider,
                              const struct sandbox *sandbox, const char *path,
                              unsigned mask, const struct stat *want,
                              const struct limits *limits, struct err *err)
{
    char text[6][48] = {"", "", "", "", "", ""};
    struct over_path place;
    struct over over;
    int rc = over_split(path, &place, err);

    if (rc < 0) {
        return rc;
    }
    if (mask & PROVIDER_ATTR_MODE) {
        (void)snprintf(text[0], sizeof(text[0]), "%o", want->st_mode & 07777U);
    }
    if (mask & PROVIDER_ATTR_UID) {
        (void)snprintf(text[1], sizeof(text[1]), "%u", want->st_uid);
    }
    if (mask & PROVIDER_ATTR_GID) {
        (void)snprintf(text[2], sizeof(text[2]), "%u", want->st_gid);
    }
    if (mask & PROVIDER_ATTR_SIZE) {
        (void)snprintf(text[3], sizeof(text[3]), "%" PRId64,
                       (int64_t)want->st_size);
    }
    if (mask & PROVIDER_ATTR_ATIME) {
        over_time(&want->st_atim, text[4]);
    }
    if (mask & PROVIDER_ATTR_MTIME) {
        over_time(&want->st_mtim, text[5]);
    }
    about(provider, sandbox, limits, over_set_attr, &place, &over);
    for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
        over.args[2 + i] = text[i];
    }
    return over_do(&over, err);
}

/* ---- The file system ---- */

/* The numbers of a line of `df -P`: all, used and free ones, before a part in
 * percent. The name in front may hold anything. */
static bool read_df(const char *line, uint64_t out[3])
{
    const char *end = line + strcspn(line, "\n");

    for (; line < end; line++) {
        char sign = '\0';

        if (*line == ' ' &&
            sscanf(line, " %" SCNu64 " %" SCNu64 " %" SCNu64 " %*u%c", &out[0],
                   &out[1], &out[2], &sign) == 4 &&
            sign == '%') {
            return true;
        }
    }
    return false;
}

/* The second line that follows. */
static const char *next_line(const char *text)
{
    const char *end = strchr(text, '\n');

    return end ? end + 1 : "";
}

static int over_statfs_path(struct provider *provider,
                            const struct sandbox *sandbox,
                            const struct limits *limits, struct statvfs *out,
                            struct err *err)
{
    const struct over over = {.provider = provider,
                              .sandbox = sandbox,
                              .limits = limits,
                              .script = over_statfs};
    struct buf text = BUF_INIT(OVER_RECORD);
    uint64_t bytes[3] = {0};
    uint64_t files[3] = {1000000, 0, 1000000}; /* Where nothing tells. */
    int rc = over_run(&over, &text, err);

    if (rc == 0) {
        const char *line = next_line(buf_str(&text));

        if (!read_df(line, bytes)) {
            rc = err_set(err, EIO, "the sandbox's df makes no sense");
        }
        (void)read_df(next_line(next_line(line)), files);
    }
    buf_done(&text);
    if (rc == 0) {
        *out = (struct statvfs){.f_bsize = 4096,
                                .f_frsize = 1024,
                                .f_blocks = bytes[0],
                                .f_bfree = bytes[2],
                                .f_bavail = bytes[2],
                                .f_files = files[0],
                                .f_ffree = files[2],
                                .f_favail = files[2],
                                .f_namemax = NAME_MAX};
    }
    return rc;
}

const struct provider_files files_over_exec = {
    .stat = over_stat_path,
    .list = over_list_path,
    .create = over_create_file,
    .make_dir = over_make_dir_path,
    .remove = over_remove_path,
    .rename = over_rename_path,
    .symlink = over_symlink_path,
    .read_link = over_read_link_path,
    .set_attr = over_set_attr_path,
    .read_at = over_read_at,
    .write_at = over_write_at,
    .link = over_link_path,
    .statfs = over_statfs_path,
    .at_once = AT_ONCE,
    .look = over_look_path,
    .tree = over_tree_path,
    .get = over_get_file,
    .get_many = over_get_files,
    .put = over_put_file,
};
