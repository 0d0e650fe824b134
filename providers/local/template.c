/*
 * What all sandboxes see of this machine, put together once. See keeper.h.
 * Mounts are copied in the keeper's namespace, which has them, and attached in
 * a new one, which lasts as long as somebody has it open.
 */
#include "providers/local/keeper.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/shelf.h"
#include "providers/local/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>

enum {
    PIECES_MAX = 512,
    LINK_MAX = 256,
    BUILD_MS = 10000, /* For directories that another machine may have. */
    RACE_US = 20000,  /* What changes in a tick may show no other time. */
};

#define DEVICE_ATTR (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC)

/* One thing of this machine: a copied mount, or a link that is made anew. */
struct piece {
    char place[NAME_MAX + 8]; /* Relative to the sandbox's root. */
    int fd;                   /* Of the mount, -1 for a link. */
    bool dir;
    char link[LINK_MAX];
};

struct pieces {
    int root;  /* Where system directories are taken from. */
    bool ours; /* That is this machine's own root directory. */
    size_t count;
    struct piece list[PIECES_MAX];
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

static const char *const own_dirs[] = {
    "usr", "etc", "etc/ssl",  "dev",     "proc", "tmp",
    "var", "run", "run/exec", "var/tmp", "home", "workspace",
};

/* In a filesystem of its own. */
static const char *const dev_dirs[] = {"dev/shm", "dev/pts"};

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

/* ---- What there is ---- */

static struct piece *next_piece(struct pieces *pieces, const char *place)
{
    struct piece *piece = &pieces->list[pieces->count];

    if (pieces->count == PIECES_MAX) {
        return NULL;
    }
    (void)snprintf(piece->place, sizeof(piece->place), "%s", place);
    piece->fd = -1;
    return piece;
}

/* Adds a mount that is attached nowhere; `mount` is taken in any case. */
static int add_detached(struct pieces *pieces, int mount, const char *place,
                        unsigned deep, uint64_t attr, struct err *err)
{
    struct piece *piece = next_piece(pieces, place);
    AUTO_FD int fd = mount;
    struct stat st;
    int rc;

    if (!piece) {
        return err_set(err, E2BIG, "too many system files");
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_errno(err, "cannot copy the mount of '/%s'", place);
    }
    rc = tree_set_attr(fd, "", AT_EMPTY_PATH | deep, attr, err);
    if (rc < 0) {
        return err_wrap(err, rc, "'/%s'", place);
    }
    piece->dir = S_ISDIR(st.st_mode);
    piece->fd = TAKE_FD(fd);
    pieces->count++;
    return 0;
}

/* Copies the mount at `path` of `at`, without what is mounted below a file. */
static int add_mount(struct pieces *pieces, int at, const char *path,
                     const char *place, uint64_t attr, struct err *err)
{
    unsigned deep = attr == DEVICE_ATTR ? 0 : AT_RECURSIVE;

    return add_detached(pieces,
                        open_tree(at, path,
                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
                                      AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW |
                                      deep),
                        place, deep, attr, err);
}

/*
 * Where a whole one is seen a sandbox may mount its own, which hides it for
 * ever. The machine's is none where something is mounted on a file of it; only
 * who is root may make another.
 */
static int add_proc(struct pieces *pieces, struct err *err)
{
    AUTO_FD int context = fsopen("proc", FSOPEN_CLOEXEC);
    int fd = -1;

    if (context >= 0 &&
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0) {
        fd = fsmount(context, FSMOUNT_CLOEXEC,
                     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    }
    return fd < 0 ? add_mount(pieces, AT_FDCWD, "/proc", "proc", 0, err)
                  : add_detached(pieces, fd, "proc", 0, 0, err);
}

/* A directory, a file or a link, wherever it is; nothing where it is not. */
static int add_system(struct pieces *pieces, const char *place, struct err *err)
{
    struct piece *piece;
    struct stat st;
    ssize_t n;

    if (fstatat(pieces->root, place, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : err_errno(err, "/%s", place);
    }
    if (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) {
        return add_mount(pieces, pieces->root, place, place, SYSTEM_ATTR, err);
    }
    piece = next_piece(pieces, place);
    if (!S_ISLNK(st.st_mode) || !piece) {
        return 0;
    }
    n = readlinkat(pieces->root, place, piece->link, sizeof(piece->link) - 1);
    if (n > 0) {
        piece->link[n] = '\0';
        pieces->count++;
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

static bool wanted(const struct pieces *pieces, const char *name)
{
    if (!pieces->ours) {
        return wanted_there(name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(etc_patterns); i++) {
        if (fnmatch(etc_patterns[i], name, 0) == 0) {
            return true;
        }
    }
    return false;
}

static int add_etc(struct pieces *pieces, struct err *err)
{
    int fd = openat(pieces->root, "etc",
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
        if (wanted(pieces, entry->d_name)) {
            (void)snprintf(place, sizeof(place), "etc/%s", entry->d_name);
            rc = add_system(pieces, place, err);
        }
    }
    if (dir) {
        (void)closedir(dir);
    }
    if (rc < 0 || !pieces->ours) {
        return rc;
    }
    rc = add_system(pieces, "etc/ssl/certs", err);
    return rc == 0 ? add_system(pieces, "etc/ssl/openssl.cnf", err) : rc;
}

/* Scripts are given to it. */
static int check_shell(const struct pieces *pieces, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT};
    AUTO_FD int fd =
        (int)syscall(SYS_openat2, pieces->root, "bin/sh", &how, sizeof(how));

    return fd < 0 ? err_errno(err, "the rootfs has no /bin/sh") : 0;
}

static int add_dirs(struct pieces *pieces, struct err *err)
{
    int rc = pieces->ours ? 0 : check_shell(pieces, err);

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(system_dirs); i++) {
        rc = add_system(pieces, system_dirs[i], err);
    }
    for (size_t i = 0; rc == 0 && !pieces->ours && i < ARRAY_SIZE(more_dirs);
         i++) {
        rc = add_system(pieces, more_dirs[i], err);
    }
    return rc;
}

static int add_pieces(struct pieces *pieces, struct err *err)
{
    int rc = add_dirs(pieces, err);

    if (rc == 0) {
        rc = add_etc(pieces, err);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(devices); i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "/%s", devices[i]);
        rc = add_mount(pieces, AT_FDCWD, path, devices[i], DEVICE_ATTR, err);
    }
    return rc == 0 ? add_proc(pieces, err) : rc;
}

/* ---- The namespace ---- */

static int make_dirs(const char *const *list, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (mkdir(list[i], 0755) < 0) {
            return err_errno(err, "cannot make /%s", list[i]);
        }
    }
    return 0;
}

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

static int make_own(struct err *err)
{
    int rc = make_dirs(own_dirs, ARRAY_SIZE(own_dirs), err);

    if (rc == 0 && mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC,
                         "mode=755,size=64k") < 0) {
        rc = err_errno(err, "cannot mount tmpfs on /dev");
    }
    if (rc == 0) {
        rc = make_dirs(dev_dirs, ARRAY_SIZE(dev_dirs), err);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(own_links); i++) {
        if (symlink(own_links[i].text, own_links[i].place) < 0) {
            rc = err_errno(err, "cannot link /%s", own_links[i].place);
        }
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(own_files); i++) {
        rc = write_text(own_files[i].place, own_files[i].text, err);
    }
    return rc;
}

/* In the new namespace: its root directory, which nobody can change. */
static int fill(const struct pieces *pieces, struct err *err)
{
    int rc;

    /* Any directory will do; nothing below it is looked at any more. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/usr", "tmpfs", MS_NOSUID | MS_NODEV,
              "mode=755,size=16m") < 0 ||
        chdir("/usr") < 0) {
        return err_errno(err, "cannot mount the root directory");
    }
    rc = make_own(err);
    for (size_t i = 0; rc == 0 && i < pieces->count; i++) {
        rc = attach(&pieces->list[i], err);
    }
    if (rc == 0) {
        rc = tree_set_attr(AT_FDCWD, "dev", 0, SYSTEM_ATTR, err);
    }
    if (rc == 0) {
        rc = tree_set_attr(AT_FDCWD, ".", 0, SYSTEM_ATTR, err);
    }
    return rc == 0 ? tree_leave_old(err) : rc;
}

/* In a process of its own, which is in the new namespace then. */
static int build(int rootfs, int *out, struct err *err)
{
    AUTO_FD int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD int mounts = -1;
    struct pieces *pieces = calloc(1, sizeof(*pieces));
    int rc;

    if (!pieces) {
        return err_no_memory(err);
    }
    pieces->ours = rootfs < 0;
    pieces->root = pieces->ours ? root : rootfs;
    rc = root < 0 ? err_errno(err, "cannot open the root directory")
                  : add_pieces(pieces, err);
    if (rc == 0 && unshare(CLONE_NEWNS) < 0) {
        rc = err_errno(err, "cannot make a mount namespace");
    }
    if (rc == 0) {
        mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        rc = mounts < 0 ? err_errno(err, "/proc/self/ns/mnt")
                        : fill(pieces, err);
    }
    /* What was copied ends with the process. */
    free(pieces);
    *out = rc == 0 ? TAKE_FD(mounts) : -1;
    return rc;
}

NORETURN static void be_builder(int rootfs, int sock)
{
    struct wire wire = {.type = WIRE_READY};
    struct err err = ERR_INIT;
    int mounts = -1;

    shelf_leave();
    if (build(rootfs, &mounts, &err) < 0) {
        wire.type = WIRE_FAILED;
        wire.code = err.code;
        (void)snprintf(wire.words, sizeof(wire.words), "%s", err.msg);
    }
    _exit(wire_send(sock, &wire, &mounts, 1, &err) == 0 ? 0 : 1);
}

/* What it has made, and where it has not, why. */
static int await_builder(int sock, int *out, struct err *err)
{
    struct pollfd fd = {.fd = sock, .events = POLLIN};
    struct wire wire;
    int fds[WIRE_FD_MAX];
    int rc;

    if (poll(&fd, 1, BUILD_MS) == 0) {
        return err_set(err, ETIMEDOUT,
                       "this machine's system directories do not answer");
    }
    rc = wire_recv(sock, &wire, fds, err);
    if (rc < 0) {
        return rc;
    }
    *out = TAKE_FD(fds[0]);
    wire_close(fds);
    return wire.type == WIRE_READY
               ? 0
               : err_set(err, wire.code > 0 ? wire.code : EPROTO, "%s",
                         wire.words);
}

int template_make(int rootfs, int *out, struct err *err)
{
    struct proc_child builder;
    int rc = proc_clone(0, -1, &builder, err);

    if (rc < 0) {
        return rc;
    }
    if (builder.pid == 0) {
        be_builder(rootfs, builder.sock);
    }
    rc = await_builder(builder.sock, out, err);
    if (rc < 0) {
        (void)kill(builder.pid, SIGKILL);
    }
    proc_forget(&builder);
    return rc;
}

/* ---- This machine's ---- */

/* What is named in them is taken by its inode; all else as it is then. */
static const char *const places[TEMPLATE_PLACES] = {"/", "/etc", "/etc/ssl"};

static void look(struct stat out[TEMPLATE_PLACES])
{
    memset(out, 0, sizeof(*out) * TEMPLATE_PLACES);
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        (void)stat(places[i], &out[i]);
    }
}

static int64_t us_of(const struct timespec *time)
{
    return time->tv_sec * INT64_C(1000000) + time->tv_nsec / 1000;
}

static bool is_same(const struct template *template,
                    const struct stat now[TEMPLATE_PLACES])
{
    struct pollfd table = {.fd = template->table, .events = POLLPRI};
    bool same = template->mounts >= 0 && poll(&table, 1, 0) == 0;

    for (size_t i = 0; same && i < TEMPLATE_PLACES; i++) {
        const struct stat *was = &template->seen[i];

        same = now[i].st_dev == was->st_dev && now[i].st_ino == was->st_ino &&
               us_of(&now[i].st_ctim) == us_of(&was->st_ctim) &&
               us_of(&was->st_ctim) + RACE_US < template->made_us;
    }
    return same;
}

int template_open(struct template *out, struct err *err)
{
    out->mounts = -1;
    out->table = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    out->home = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    out->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (out->table < 0 || out->home < 0 || out->root < 0) {
        return err_errno(err, "the keeper's own mounts");
    }
    return 0;
}

int template_renew(struct template *template, struct err *err)
{
    struct stat now[TEMPLATE_PLACES];
    int mounts;
    int rc;

    look(now);
    if (is_same(template, now)) {
        return 0;
    }
    cleanup_fd(&template->mounts);
    template->made_us = clock_wall_us();
    rc = template_make(-1, &mounts, err);
    if (rc == 0) {
        template->mounts = mounts;
        memcpy(template->seen, now, sizeof(now));
    }
    return rc;
}

int template_enter(int mounts, struct err *err)
{
    return setns(mounts, CLONE_NEWNS) < 0
               ? err_errno(err, "cannot enter the template's mounts")
               : 0;
}

int template_leave(const struct template *template, struct err *err)
{
    return setns(template->home, CLONE_NEWNS) < 0 ||
                   fchdir(template->root) < 0 || chroot(".") < 0
               ? err_errno(err, "cannot come back to the keeper's own mounts")
               : 0;
}

void template_close(struct template *template)
{
    cleanup_fd(&template->mounts);
    cleanup_fd(&template->table);
    cleanup_fd(&template->home);
    cleanup_fd(&template->root);
}
