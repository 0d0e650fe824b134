/*
 * What a sandbox sees of this machine, and what it gets of its own.
 * See keeper.h. Mounts are copied in the keeper, which may, and attached in
 * the sandbox, which is the only place where they appear.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "providers/local/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    PIECES_MAX = 512,
    LINK_MAX = 256,
};

#define SYSTEM_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define DEVICE_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)
#define FILES_ATTR  (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* One thing of this machine: a copied mount, or a link that is made anew. */
struct piece {
    char place[NAME_MAX + 8]; /* Relative to the sandbox's root. */
    int fd;                   /* Of the mount, -1 for a link. */
    bool dir;
    char link[LINK_MAX];
};

struct tree {
    int root;  /* Where system directories are taken from. */
    bool ours; /* That is this machine's own root directory. */
    size_t count;
    struct piece pieces[PIECES_MAX];
};

static const char *const system_dirs[] = {
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32",
};

/* What another root directory has besides. */
static const char *const more_dirs[] = {"opt", "srv"};

static const char *const devices[] = {
    "dev/null", "dev/zero", "dev/full", "dev/random", "dev/urandom", "dev/tty",
};

/*
 * What programs need of /etc and what holds no secret. Names of the machine,
 * its users and its network are not among them.
 */
static const char *const etc_patterns[] = {
    "alternatives",
    "bash.bashrc",
    "debian_version",
    "fonts",
    "ghc",
    "gprofng.rc",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "lsb-release",
    "magic",
    "magic.mime",
    "manpath.config",
    "maven",
    "mime.types",
    "os-release",
    "perl",
    "profile",
    "protocols",
    "python*",
    "rpc",
    "services",
    "terminfo",
    "texmf",
    "timezone",
    "vim",
    "ethertypes",
    "fpc*",
};

/* Filesystems of the sandbox's own, in order. */
static const struct own_mount {
    const char *type;
    const char *place;
    unsigned long flags;
    const char *options;
    bool sized; /* Commands may fill it up to their limit. */
} own_mounts[] = {
    {"tmpfs", "dev", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k", false},
    {"tmpfs", "dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"devpts", "dev/pts", MS_NOSUID | MS_NOEXEC,
     "newinstance,ptmxmode=0666,mode=0600,max=256", false},
    {"tmpfs", "tmp", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"tmpfs", "var/tmp", MS_NOSUID | MS_NODEV, "mode=1777", true},
    {"proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
};

static const char *const own_dirs[] = {
    "usr", "etc", "etc/ssl",  "dev",     "proc", "tmp",
    "var", "run", "run/exec", "var/tmp", "home", "workspace",
};

static const struct own_text {
    const char *place;
    const char *text;
} own_files[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   "user:x:1000:1000:user:" WIRE_WORKSPACE ":/bin/sh\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:"
                   "/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"},
    {"etc/hostname", "sandbox\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"
                          "services: files\nprotocols: files\nrpc: files\n"},
    {"etc/resolv.conf", ""},
};

static const struct own_text own_links[] = {
    {"etc/mtab", "/proc/self/mounts"}, {"var/run", "/run"},
    {"dev/fd", "/proc/self/fd"},       {"dev/stdin", "/proc/self/fd/0"},
    {"dev/stdout", "/proc/self/fd/1"}, {"dev/stderr", "/proc/self/fd/2"},
    {"dev/ptmx", "pts/ptmx"},
};

/* Parts of /proc that concern the whole machine and are nobody's business. */
static const char *const proc_masked[] = {
    "/proc/acpi",          "/proc/asound",     "/proc/cmdline",
    "/proc/interrupts",    "/proc/kallsyms",   "/proc/kcore",
    "/proc/key-users",     "/proc/keys",       "/proc/kmsg",
    "/proc/kpagecgroup",   "/proc/kpagecount", "/proc/kpageflags",
    "/proc/latency_stats", "/proc/modules",    "/proc/sched_debug",
    "/proc/scsi",          "/proc/timer_list", "/proc/timer_stats",
};

/* ---- In the keeper ---- */

static int set_attr(int fd, const char *path, unsigned flags, uint64_t attr,
                    struct err *err)
{
    struct mount_attr set = {.attr_set = attr, .propagation = MS_PRIVATE};

    if (mount_setattr(fd, path, flags, &set, sizeof(set)) < 0) {
        return err_errno(err, "mount_setattr (Linux 5.12)");
    }
    return 0;
}

static struct piece *next_piece(struct tree *tree, const char *place)
{
    struct piece *piece = &tree->pieces[tree->count];

    if (tree->count == PIECES_MAX) {
        return NULL;
    }
    (void)snprintf(piece->place, sizeof(piece->place), "%s", place);
    piece->fd = -1;
    return piece;
}

/* Copies the mount at `path` of `at`, without what is mounted below a file. */
static int add_mount(struct tree *tree, int at, const char *path,
                     const char *place, uint64_t attr, struct err *err)
{
    unsigned deep = attr == SYSTEM_ATTR ? AT_RECURSIVE : 0;
    struct piece *piece = next_piece(tree, place);
    AUTO_FD int fd = -1;
    struct stat st;
    int rc;

    if (!piece) {
        return err_set(err, E2BIG, "too many system files");
    }
    fd = open_tree(at, path,
                   OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
                       AT_SYMLINK_NOFOLLOW | deep);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_errno(err, "cannot copy the mount of '/%s'", place);
    }
    rc = set_attr(fd, "", AT_EMPTY_PATH | deep, attr, err);
    if (rc < 0) {
        return err_wrap(err, rc, "'/%s'", place);
    }
    piece->dir = S_ISDIR(st.st_mode);
    piece->fd = TAKE_FD(fd);
    tree->count++;
    return 0;
}

/* A directory, a file or a link, wherever it is; nothing where it is not. */
static int add_system(struct tree *tree, const char *place, struct err *err)
{
    struct piece *piece;
    struct stat st;
    ssize_t n;

    if (fstatat(tree->root, place, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "/%s", place);
    }
    if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) {
        return add_mount(tree, tree->root, place, place, SYSTEM_ATTR, err);
    }
    piece = next_piece(tree, place);
    if (!S_ISLNK(st.st_mode) || !piece) {
        return 0;
    }
    n = readlinkat(tree->root, place, piece->link, sizeof(piece->link) - 1);
    if (n > 0) {
        piece->link[n] = '\0';
        tree->count++;
    }
    return 0;
}

/* Another root directory has no secret: all of its /etc but what is ours. */
static bool wanted_there(const char *name)
{
    const size_t skip = strlen("etc/");

    for (size_t i = 0; i < ARRAY_SIZE(own_files); i++) {
        if (strcmp(own_files[i].place + skip, name) == 0) {
            return false;
        }
    }
    return name[0] != '.' && strcmp(name, "mtab") != 0;
}

static bool wanted(const struct tree *tree, const char *name)
{
    if (!tree->ours) {
        return wanted_there(name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(etc_patterns); i++) {
        if (fnmatch(etc_patterns[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

static int add_etc(struct tree *tree, struct err *err)
{
    int fd = openat(tree->root, "etc",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = dir ? 0 : err_errno(err, "/etc");

    while (rc == 0) {
        char place[NAME_MAX + 8];

        entry = readdir(dir);
        if (!entry) {
            break;
        }
        if (wanted(tree, entry->d_name)) {
            (void)snprintf(place, sizeof(place), "etc/%s", entry->d_name);
            rc = add_system(tree, place, err);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    if (rc < 0 || !tree->ours) {
        return rc;
    }
    rc = add_system(tree, "etc/ssl/certs", err);
    return rc == 0 ? add_system(tree, "etc/ssl/openssl.cnf", err) : rc;
}

/* Scripts are given to it. */
static int check_shell(const struct tree *tree, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT};
    AUTO_FD int fd =
        (int)syscall(SYS_openat2, tree->root, "bin/sh", &how, sizeof(how));

    return fd < 0 ? err_errno(err, "the rootfs has no /bin/sh") : 0;
}

static int add_dirs(struct tree *tree, struct err *err)
{
    int rc = tree->ours ? 0 : check_shell(tree, err);

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(system_dirs); i++) {
        rc = add_system(tree, system_dirs[i], err);
    }
    for (size_t i = 0; rc == 0 && !tree->ours && i < ARRAY_SIZE(more_dirs);
         i++) {
        rc = add_system(tree, more_dirs[i], err);
    }
    return rc;
}

static int add_pieces(struct tree *tree, int workspace, struct err *err)
{
    int rc = add_dirs(tree, err);

    if (rc == 0) {
        rc = add_etc(tree, err);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(devices); i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "/%s", devices[i]);
        rc = add_mount(tree, AT_FDCWD, path, devices[i], DEVICE_ATTR, err);
    }
    if (rc == 0) {
        rc = add_mount(tree, workspace, "", "workspace", FILES_ATTR, err);
    }
    return rc;
}

int tree_open(int workspace, int rootfs, struct tree **out, struct err *err)
{
    AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct tree *tree = calloc(1, sizeof(*tree));
    int rc;

    if (!tree || root < 0) {
        free(tree);
        return err_set(err, ENOMEM, "cannot open the root directory");
    }
    tree->ours = rootfs < 0;
    tree->root = tree->ours ? root : rootfs;
    rc = add_pieces(tree, workspace, err);
    tree->root = -1;
    if (rc < 0) {
        tree_close(tree);
        return rc;
    }
    *out = tree;
    return 0;
}

void tree_close(struct tree *tree)
{
    for (size_t i = 0; tree && i < tree->count; i++) {
        cleanup_fd(&tree->pieces[i].fd);
    }
    free(tree);
}

/* ---- In the sandbox ---- */

static int write_text(const char *place, const char *text, struct err *err)
{
    AUTO_FD int fd = open(place, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    size_t size = strlen(text);

    if (fd < 0 || write(fd, text, size) != (ssize_t)size) {
        return err_errno(err, "cannot write /%s", place);
    }
    return 0;
}

static int attach(const struct piece *piece, struct err *err)
{
    int rc = 0;

    if (piece->fd < 0) {
        rc = symlink(piece->link, piece->place);
    } else if (piece->dir) {
        rc = mkdir(piece->place, 0755) < 0 && errno != EEXIST ? -1 : 0;
    } else {
        rc = write_text(piece->place, "", err);
    }
    if (rc == 0 && piece->fd >= 0) {
        rc = move_mount(piece->fd, "", AT_FDCWD, piece->place,
                        MOVE_MOUNT_F_EMPTY_PATH);
    }
    return rc < 0 ? err_errno(err, "cannot attach /%s", piece->place) : 0;
}

static int mount_own(const struct own_mount *own, int64_t tmp_bytes,
                     struct err *err)
{
    char sized[64];

    (void)snprintf(sized, sizeof(sized), "%s,size=%" PRId64,
                   own->options ? own->options : "", tmp_bytes);
    if (mkdir(own->place, 0755) < 0 && errno != EEXIST) {
        return err_errno(err, "cannot make /%s", own->place);
    }
    if (mount(own->type, own->place, own->type, own->flags,
              own->sized ? sized : own->options) < 0) {
        return err_errno(err, "cannot mount %s on /%s", own->type, own->place);
    }
    return 0;
}

static int make_own(int64_t tmp_bytes, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(own_dirs); i++) {
        if (mkdir(own_dirs[i], 0755) < 0) {
            return err_errno(err, "cannot make /%s", own_dirs[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(own_mounts); i++) {
        int rc = mount_own(&own_mounts[i], tmp_bytes, err);

        if (rc < 0) {
            return rc;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(own_links); i++) {
        if (symlink(own_links[i].text, own_links[i].place) < 0) {
            return err_errno(err, "cannot link /%s", own_links[i].place);
        }
    }
    return 0;
}

static int fill_root(const struct tree *tree, int64_t tmp_bytes,
                     struct err *err)
{
    int rc = make_own(tmp_bytes, err);

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(own_files); i++) {
        rc = write_text(own_files[i].place, own_files[i].text, err);
    }
    for (size_t i = 0; rc == 0 && i < tree->count; i++) {
        rc = attach(&tree->pieces[i], err);
    }
    return rc;
}

static int mask(const char *path, struct err *err)
{
    struct stat st;
    int rc;

    if (lstat(path, &st) < 0) {
        return 0;
    }
    if (S_ISDIR(st.st_mode)) {
        rc = mount("tmpfs", path, "tmpfs",
                   MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k");
    } else {
        rc = mount("/dev/null", path, NULL, MS_BIND, NULL);
    }
    return rc < 0 ? err_errno(err, "cannot mask %s", path) : 0;
}

/* Through a mount of its own: that of all will be read-only. */
static int open_oom(int *out, struct err *err)
{
    AUTO_FD int proc =
        open_tree(AT_FDCWD, "/proc", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int fd = -1;

    /* The file is the caller's as long as it may be dumped. */
    if (proc >= 0 && prctl(PR_SET_DUMPABLE, 1) == 0) {
        fd = openat(proc, "self/oom_score_adj", O_RDWR | O_CLOEXEC);
    }
    if (fd < 0) {
        return err_errno(err, "oom_score_adj");
    }
    *out = fd;
    return 0;
}

/*
 * Nothing in it can be written, be it of the whole machine or of a process: a
 * command must not make its own memory dearer where memory ends.
 */
static int guard_proc(struct err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(proc_masked); i++) {
        rc = mask(proc_masked[i], err);
    }
    return rc == 0 ? set_attr(AT_FDCWD, "/proc", 0,
                              SYSTEM_ATTR | MOUNT_ATTR_NOEXEC, err)
                   : rc;
}

/*
 * The commands of a sandbox may have the id that process 1 has, so it is the
 * mount, not the mode, that keeps them from each other's scripts.
 */
static int mount_scripts(int *out, struct err *err)
{
    const char *place = &WIRE_SCRIPTS[1];
    AUTO_FD int fd = -1;
    int rc;

    if (mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=755,size=64m") < 0) {
        return err_errno(err, "cannot mount tmpfs on /%s", place);
    }
    fd = open_tree(AT_FDCWD, place, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (fd < 0) {
        return err_errno(err, "cannot copy the mount of /%s", place);
    }
    rc = set_attr(AT_FDCWD, place, 0, SYSTEM_ATTR, err);
    if (rc == 0) {
        *out = TAKE_FD(fd);
    }
    return rc;
}

int tree_enter(const struct tree *tree, int64_t tmp_bytes, int *scripts,
               int *oom, struct err *err)
{
    AUTO_FD int to_scripts = -1;
    AUTO_FD int to_oom = -1;
    int rc;

    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return err_errno(err, "cannot make mounts private");
    }
    /* Any directory will do; nothing below it is looked at any more. */
    if (mount("tmpfs", "/usr", "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=755,size=16m") < 0 ||
        chdir("/usr") < 0) {
        return err_errno(err, "cannot mount the root directory");
    }
    rc = fill_root(tree, tmp_bytes, err);
    if (rc == 0) {
        rc = mount_scripts(&to_scripts, err);
    }
    if (rc < 0) {
        return rc;
    }
    /* The old root comes to lie upon the new one, and is taken off. */
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0) {
        return err_errno(err, "cannot leave the machine's root directory");
    }
    rc = open_oom(&to_oom, err);
    if (rc == 0) {
        rc = guard_proc(err);
    }
    if (rc == 0) {
        rc = set_attr(AT_FDCWD, "/dev", 0, SYSTEM_ATTR, err);
    }
    if (rc == 0) {
        rc = set_attr(AT_FDCWD, "/", 0, SYSTEM_ATTR, err);
    }
    if (rc == 0) {
        *scripts = TAKE_FD(to_scripts);
        *oom = TAKE_FD(to_oom);
    }
    return rc;
}
