/* The directories that options name. See options.h. */
#include "core/cleanup.h"
#include "core/log.h"
#include "core/path.h"
#include "fs/kernel.h"
#include "fs/options.h"

#include <errno.h>
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int default_state(char out[PATH_MAX], struct err *err)
{
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n;

    if (geteuid() == 0) {
        n = snprintf(out, PATH_MAX, "/var/lib/sessionfs");
    } else if (xdg && *xdg == '/') {
        n = snprintf(out, PATH_MAX, "%s/sessionfs", xdg);
    } else if (home && *home == '/') {
        n = snprintf(out, PATH_MAX, "%s/.local/state/sessionfs", home);
    } else {
        return err_set(err, EINVAL,
                       "neither XDG_STATE_HOME nor HOME is set; "
                       "give -o state=DIR");
    }
    return n < PATH_MAX ? 0 : err_set(err, ENAMETOOLONG, "state directory");
}

/* Appends a name to a directory's path. */
static int append(char dir[PATH_MAX], const char *name, struct err *err)
{
    size_t len = strlen(dir);

    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return err_set(err, ENOENT, "'%s/%s' does not exist", dir, name);
    }
    if (len + 1 + strlen(name) >= PATH_MAX) {
        return err_set(err, ENAMETOOLONG, "the path is too long");
    }
    (void)snprintf(dir + len, PATH_MAX - len, "%s%s", dir[1] ? "/" : "", name);
    return 0;
}

/* The real path of what may not be there yet, or is the dead mount of an
 * earlier daemon: of its parent then, and the name. */
static int resolve(const char *path, char out[PATH_MAX], struct err *err)
{
    AUTO_FREE char *copy = strdup(path);
    const char *parent = ".";
    const char *name = copy;
    char *slash;
    int rc;

    if (realpath(path, out)) {
        return 0;
    }
    if ((errno != ENOENT && errno != ENOTCONN) || !copy || !*copy) {
        return err_errno(err, "'%s'", path);
    }
    slash = strrchr(copy, '/');
    while (slash && slash > copy && !slash[1]) {
        *slash = '\0';
        slash = strrchr(copy, '/');
    }
    if (slash) {
        name = slash + 1;
        *slash = '\0';
        parent = slash > copy ? copy : "/";
    }
    rc = resolve(parent, out, err);
    return rc < 0 ? rc : append(out, name, err);
}

static int check_mount_point(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return errno == ENOTCONN ? 0 : err_errno(err, "'%s'", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set(err, ENOTDIR, "'%s' is not a directory", path);
    }
    return 0;
}

static int find_mount_point(struct options *options, struct err *err)
{
    char path[PATH_MAX];
    int rc = resolve(options->mount_point, path, err);

    if (rc == 0) {
        rc = check_mount_point(path, err);
    }
    if (rc == 0) {
        memcpy(options->mount_point, path, sizeof(path));
    }
    return rc;
}

static int find_state(struct options *options, struct err *err)
{
    char path[PATH_MAX];
    int rc = options->state[0] ? 0 : default_state(options->state, err);

    if (rc == 0) {
        rc = resolve(options->state, path, err);
    }
    if (rc == 0) {
        memcpy(options->state, path, sizeof(path));
    }
    return rc;
}

static int check_apart(const struct options *options, struct err *err)
{
    if (path_lies_in(options->state, options->mount_point)) {
        return err_set(err, EINVAL,
                       "the state directory lies in the mount point");
    }
    if (path_lies_in(options->mount_point, options->state)) {
        return err_set(err, EINVAL,
                       "the mount point lies in the state directory");
    }
    return 0;
}

/* A directory that has to be there, apart from the mount. */
static int find_dir(char dir[PATH_MAX], const char *mount_point,
                    struct err *err)
{
    char path[PATH_MAX];
    struct stat st;

    if (!dir[0]) {
        return 0;
    }
    if (!realpath(dir, path) || stat(path, &st) < 0) {
        return err_errno(err, "'%s'", dir);
    }
    if (!S_ISDIR(st.st_mode)) {
        return err_set(err, ENOTDIR, "'%s' is not a directory", dir);
    }
    if (mount_point[0] && path_lies_in(path, mount_point)) {
        return err_set(err, EINVAL, "it lies in the mount point");
    }
    memcpy(dir, path, sizeof(path));
    return 0;
}

/* Names below it are looked up while requests wait, and must not be requests
 * themselves. */
static int find_base(struct options *options, struct err *err)
{
    int rc = find_dir(options->base, options->mount_point, err);

    if (rc < 0 || !options->base[0]) {
        return rc;
    }
    if (options->mount_point[0] &&
        path_lies_in(options->mount_point, options->base)) {
        return err_set(err, EINVAL, "the mount point lies in it");
    }
    if (path_lies_in(options->base, options->state) ||
        path_lies_in(options->state, options->base)) {
        return err_set(err, EINVAL, "it overlaps the state directory");
    }
    return 0;
}

static int find_dirs(struct options *options, struct err *err)
{
    int rc = find_dir(options->profiles, options->mount_point, err);

    if (rc < 0) {
        return err_wrap(err, rc, "option 'profiles'");
    }
    rc = find_base(options, err);
    return rc < 0 ? err_wrap(err, rc, "option 'base'") : 0;
}

/* Takes a number, or looks a name up. */
static int find_group(struct options *options, struct err *err)
{
    const char *text = options->group;
    const struct group *found;
    unsigned long n;

    if (!text[strspn(text, "0123456789")]) {
        errno = 0;
        n = strtoul(text, NULL, 10);
        if (errno || n >= UINT32_MAX) {
            return err_set(err, EINVAL, "'%s' is no number of a group", text);
        }
        options->gid = (gid_t)n;
        return 0;
    }
    found = getgrnam(text); /* NOLINT(concurrency-mt-unsafe): no threads yet */
    if (!found) {
        return err_set(err, EINVAL, "there is no group '%s'", text);
    }
    options->gid = found->gr_gid;
    return 0;
}

/* Whether the administrator lets users let others into their mounts. */
static bool fuse_conf_allows(void)
{
    FILE *stream = fopen("/etc/fuse.conf", "re");
    char line[256];
    bool allows = false;

    while (stream && !allows && fgets(line, sizeof(line), stream)) {
        char word[sizeof(line)];

        allows = sscanf(line, "%255s", word) == 1 &&
                 strcmp(word, "user_allow_other") == 0;
    }
    if (stream) {
        (void)fclose(stream);
    }
    return allows;
}

/* Whom the kernel lets in, and the group of all files. */
static int check_others(struct options *options, struct err *err)
{
    int rc = 0;

    options->gid = getgid();
    if (options->group[0]) {
        rc = find_group(options, err);
        if (rc < 0) {
            return err_wrap(err, rc, "option 'gid'");
        }
    }
    if ((options->allow_other || options->group[0]) && geteuid() != 0 &&
        !fuse_conf_allows()) {
        return err_set(err, EPERM,
                       "option '%s' needs the line user_allow_other in "
                       "/etc/fuse.conf, unless root mounts",
                       options->group[0] ? "gid" : "allow_other");
    }
    options->allow_other |= options->group[0] != '\0';
    return 0;
}

int options_check(struct options *options, struct err *err)
{
    bool mounts = options->mount_point[0] != '\0';
    int rc = mounts || !(options->check || options->serve)
                 ? find_mount_point(options, err)
                 : 0;

    if (rc < 0) {
        return err_wrap(err, rc, "mount point");
    }
    rc = find_state(options, err);
    if (rc < 0) {
        return err_wrap(err, rc, "state directory");
    }
    rc = check_others(options, err);
    if (rc == 0) {
        rc = kernel_features_parse(options->without, &options->features, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (options->serve && options->read_only) {
        return err_set(err, EINVAL, "option 'ro' leaves nothing to serve");
    }
    if (options->log == OPTIONS_LOG_JOURNAL && !log_has_journal()) {
        return err_set(err, EINVAL, "option 'log': there is no journal here");
    }
    rc = mounts ? check_apart(options, err) : 0;
    return rc < 0 ? rc : find_dirs(options, err);
}
