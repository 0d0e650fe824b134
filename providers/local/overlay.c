/*
 * A session's workspace as an overlay mount. See keeper.h.
 *
 * Layers are named by our own fds, so that the mount's options, which the
 * sandbox can read, tell no path of this machine.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/note.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
    FD_PATH_SIZE = 32,
    WORDS_SIZE = 256,
};

struct fd_path {
    char text[FD_PATH_SIZE];
};

static struct fd_path path_of(int fd)
{
    struct fd_path path;

    (void)snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", fd);
    return path;
}

static int set_layer(int context, const char *key, int fd)
{
    struct fd_path path = path_of(fd);

    return fsconfig(context, FSCONFIG_SET_STRING, key, path.text, 0);
}

/* Whether inode numbers of both layers have to be told apart. */
static bool are_apart(const struct overlay_plan *plan, int lower)
{
    struct stat above;
    struct stat below;

    return fstat(plan->layers, &above) < 0 || fstat(lower, &below) < 0 ||
           above.st_dev != below.st_dev;
}

size_t overlay_list_options(const struct overlay_plan *plan, int lower,
                            struct overlay_option out[OVERLAY_OPTIONS])
{
    size_t n = 0;

    /* With the notes of others the kernel cannot follow a directory that was
     * moved. */
    out[n++] = note_trusted() ? (struct overlay_option){"redirect_dir", "on"}
                              : (struct overlay_option){"userxattr", NULL};
    out[n++] = (struct overlay_option){"index", "off"};
    out[n++] = (struct overlay_option){"metacopy", "off"};
    /* They stay when a file is copied up. Where nothing has to be done for
     * that the kernel's log would complain of each mount. */
    if (are_apart(plan, lower)) {
        out[n++] = (struct overlay_option){"xino", "on"};
    }
    /* What was written is the kernel's, so that our end loses none of it; for
     * the disk nothing waits then, fsync() neither. */
    if (plan->upper >= 0 && !plan->synced) {
        out[n++] = (struct overlay_option){"volatile", NULL};
    }
    return n;
}

static int set_options(int context, const struct overlay_plan *plan, int lower)
{
    struct overlay_option options[OVERLAY_OPTIONS];
    size_t count = overlay_list_options(plan, lower, options);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = fsconfig(
            context, options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
            options[i].key, options[i].value, 0);
    }
    return rc;
}

static int add_layer(int context, int layers, uint64_t id)
{
    char name[FD_PATH_SIZE];
    AUTO_FD int fd = -1;

    (void)snprintf(name, sizeof(name), "%" PRIu64, id);
    fd = openat(layers, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -1 : set_layer(context, "lowerdir+", fd);
}

/* From the top one down; the last is that which is no layer of ours. */
static int set_lower(int context, const struct overlay_plan *plan, int lower)
{
    for (int i = 0; i < plan->deep; i++) {
        uint64_t id;

        if (pread(plan->chain, &id, sizeof(id), i * (off_t)sizeof(id)) !=
                (ssize_t)sizeof(id) ||
            add_layer(context, plan->layers, id) < 0) {
            return -1;
        }
    }
    return set_layer(context, "lowerdir+", lower);
}

static int set_upper(int context, const struct overlay_plan *plan)
{
    if (plan->upper < 0) {
        return 0;
    }
    return set_layer(context, "upperdir", plan->upper) < 0
               ? -1
               : set_layer(context, "workdir", plan->work);
}

/* The kernel's own words about a failure, or "". */
static void read_words(int context, char out[WORDS_SIZE])
{
    ssize_t n = read(context, out, WORDS_SIZE - 1);

    out[n < 0 ? 0 : n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (strncmp(out, "e ", 2) == 0) { /* An error, and not a warning. */
        memmove(out, out + 2, strlen(out + 2) + 1);
    }
}

static int fail(int context, struct err *err)
{
    int code = errno;
    char words[WORDS_SIZE];

    read_words(context, words);
    return err_set(err, code, "cannot make an overlay: %s",
                   words[0] ? words : strerror(code));
}

static int mount_layers(const struct overlay_plan *plan, int lower, int *out,
                        struct err *err)
{
    AUTO_FD int context = fsopen("overlay", FSOPEN_CLOEXEC);
    const bool writes = plan->upper >= 0;
    int fd;

    if (context < 0) {
        return err_errno(err, "this kernel has no overlay filesystem");
    }
    if (set_lower(context, plan, lower) < 0 || set_upper(context, plan) < 0 ||
        set_options(context, plan, lower) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        return fail(context, err);
    }
    fd = fsmount(context, FSMOUNT_CLOEXEC,
                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                     (writes ? 0U : MOUNT_ATTR_RDONLY));
    if (fd < 0) {
        return fail(context, err);
    }
    *out = fd;
    return 0;
}

bool overlay_copies(void)
{
    AUTO_FD int first =
        open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    AUTO_FD int second =
        first < 0
            ? -1
            : open_tree(first, "",
                        OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    return second >= 0;
}

/* The kernel makes no overlay of one directory. */
static int copy_lower(int lower, int *out, struct err *err)
{
    int fd = open_tree(lower, "",
                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (fd < 0) {
        return err_errno(err, "cannot copy the mount of the base");
    }
    *out = fd;
    return 0;
}

int overlay_mount(const struct overlay_plan *plan, int *out, struct err *err)
{
    AUTO_FD int mapped = -1;
    int lower = plan->lower;

    if (plan->map_lower) {
        int rc = idmap_copy(plan->lower, plan->id_base, &mapped, err);

        if (rc < 0) {
            return rc;
        }
        lower = mapped;
    }
    if (plan->upper < 0 && plan->deep == 0) {
        return copy_lower(lower, out, err);
    }
    return plan->attach ? attached_mount(plan, mapped, out, err)
                        : mount_layers(plan, lower, out, err);
}
