/* Attempts by files, devices and mounts. See local_attempts.h. */
#include "tests/contract/local_attempts.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* A file of the attempt's own, where it may write. */
static int own_file(char path[32])
{
    (void)snprintf(path, 32, "./sessionfs-attempt-XXXXXX");
    return mkostemp(path, O_CLOEXEC);
}

static int gone(const char *path, int fd, int rc)
{
    int saved = errno;

    (void)unlink(path);
    errno = saved;
    return after_close(fd, rc);
}

/* From a file that gives words of eight bytes and nothing less. */
static int read_words(const struct attempt_ctx *ctx)
{
    int fd = open(ctx->row->text, O_RDONLY | O_CLOEXEC);
    char word[8];
    ssize_t n;

    if (fd < 0) {
        return -1;
    }
    n = read(fd, word, sizeof(word));
    if (n == 0) {
        errno = ENODATA;
    }
    return after_close(fd, n == (ssize_t)sizeof(word) ? 0 : -1);
}

static int set_attribute(const struct attempt_ctx *ctx)
{
    char path[32];
    int fd = own_file(path);

    return gone(path, fd, fsetxattr(fd, ctx->row->text, "x", 1, 0));
}

/* Flags that keep even the owner from a file's removal. */
static int set_flags(const struct attempt_ctx *ctx)
{
    int flags = (int)ctx->row->number;
    int none = 0;
    char path[32];
    int fd = own_file(path);
    int rc = ioctl(fd, FS_IOC_SETFLAGS, &flags);
    int saved = errno;

    (void)ioctl(fd, FS_IOC_SETFLAGS, &none);
    errno = saved;
    return gone(path, fd, rc);
}

static int set_project(const struct attempt_ctx *ctx)
{
    struct fsxattr attr = {.fsx_projid = 4321};
    char path[32];
    int fd = own_file(path);

    (void)ctx;
    return gone(path, fd, ioctl(fd, FS_IOC_FSSETXATTR, &attr));
}

static int find_block(const struct attempt_ctx *ctx)
{
    int block = 0;
    char path[32];
    int fd = own_file(path);

    (void)ctx;
    return gone(path, fd, ioctl(fd, FIBMAP, &block));
}

static int give_away(const struct attempt_ctx *ctx)
{
    char path[32];
    int fd = own_file(path);

    return gone(path, fd, fchown(fd, (uid_t)ctx->row->number, (gid_t)-1));
}

static int give_to_group(const struct attempt_ctx *ctx)
{
    char path[32];
    int fd = own_file(path);

    return gone(path, fd, fchown(fd, (uid_t)-1, (gid_t)ctx->row->number));
}

static int make_whiteout(const struct attempt_ctx *ctx)
{
    int rc = mknod("./sessionfs-whiteout", S_IFCHR, 0);
    int saved = errno;

    (void)ctx;
    (void)unlink("./sessionfs-whiteout");
    errno = saved;
    return rc;
}

static int make_node_by_at(const struct attempt_ctx *ctx)
{
    int rc = mknodat(AT_FDCWD, "./sessionfs-node",
                     (mode_t)ctx->row->number | 0600, 0x101);
    int saved = errno;

    (void)unlink("./sessionfs-node");
    errno = saved;
    return rc;
}

static int link_system_file(const struct attempt_ctx *ctx)
{
    int rc = link(ctx->row->text, "./sessionfs-link");
    int saved = errno;

    (void)unlink("./sessionfs-link");
    errno = saved;
    return rc;
}

static int change_times(const struct attempt_ctx *ctx)
{
    struct stat attr;
    struct timespec times[2];

    if (stat(ctx->row->text, &attr) < 0) {
        return -1;
    }
    times[0] = attr.st_atim;
    times[1] = attr.st_mtim;
    return utimensat(AT_FDCWD, ctx->row->text, times, 0);
}

static int change_mode(const struct attempt_ctx *ctx)
{
    struct stat attr;

    if (stat(ctx->row->text, &attr) < 0) {
        return -1;
    }
    return chmod(ctx->row->text, attr.st_mode & 07777);
}

static int mount_type(const struct attempt_ctx *ctx)
{
    return mount("none", "/tmp", ctx->row->text, 0, NULL);
}

static int mount_flags(const struct attempt_ctx *ctx)
{
    return mount(ctx->row->text, "/tmp", NULL, (unsigned long)ctx->row->number,
                 NULL);
}

/* By the calls that came later. */
static int mount_by_fd(const struct attempt_ctx *ctx)
{
    int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    int made = -1;

    (void)ctx;
    if (context < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        return -1;
    }
    made = fsmount(context, FSMOUNT_CLOEXEC, 0);
    return made < 0 ? -1
                    : move_mount(made, "", AT_FDCWD, "/tmp",
                                 MOVE_MOUNT_F_EMPTY_PATH);
}

static int pick_mount(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return of_fd(fspick(AT_FDCWD, "/", FSPICK_CLOEXEC));
}

static int change_mount(const struct attempt_ctx *ctx)
{
    struct mount_attr attr = {.attr_clr =
                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY};

    /* The root directory outside may be no mount that can be changed. */
    (void)mount("/usr", "/usr", NULL, MS_BIND, NULL);
    return mount_setattr(AT_FDCWD, ctx->row->text, 0, &attr, sizeof(attr));
}

static int move_root(const struct attempt_ctx *ctx)
{
    (void)ctx;
    (void)mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    return chdir("/tmp") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ? -1 : 0;
}

static int open_above(const struct attempt_ctx *ctx)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || chroot("/tmp") < 0 || fchdir(fd) < 0) {
        return -1;
    }
    (void)ctx;
    return access("../etc", F_OK);
}

CALLS(quotas, SYS_quotactl, 0x800001U << 8, NULL, 0, NULL)
CALLS(handle_of_root, SYS_name_to_handle_at, AT_FDCWD, "/", (&(struct {
          struct file_handle head;
          char bytes[MAX_HANDLE_SZ];
      }){.head.handle_bytes = MAX_HANDLE_SZ}),
      &(int){0}, 0)

const struct attempt attempts_files[] = {
    {"write the kernel's modes of huge pages", CONTROL_MAY, attempt_open,
     "/sys/kernel/mm/transparent_hugepage/enabled", O_WRONLY},
    {"write a device's events", CONTROL_MAY, attempt_open,
     "/sys/class/mem/null/uevent", O_WRONLY},
    {"write a release agent", CONTROL_MAY, attempt_open,
     "/sys/fs/cgroup/memory/release_agent", O_WRONLY},
    {"write a control group's processes", CONTROL_MAY, attempt_open,
     "/sys/fs/cgroup/memory/cgroup.procs", O_WRONLY},
    {"write the kernel's caches away", CONTROL_MAY, attempt_open,
     "/proc/sys/vm/drop_caches", O_WRONLY},
    {"write how addresses are forwarded", CONTROL_MAY, attempt_open,
     "/proc/sys/net/ipv4/ip_forward", O_WRONLY},
    {"write how many namespaces there may be", CONTROL_MAY, attempt_open,
     "/proc/sys/user/max_user_namespaces", O_WRONLY},
    {"write who is asked for programs", CONTROL_MAY, attempt_open,
     "/proc/sys/fs/binfmt_misc/register", O_WRONLY},
    {"write the largest pid", CONTROL_MAY, attempt_open,
     "/proc/sys/kernel/pid_max", O_WRONLY},
    {"write an interrupt's processors", CONTROL_MAY, attempt_open,
     "/proc/irq/default_smp_affinity", O_WRONLY},
    {"read where the kernel's memory lies", CONTROL_MAY, attempt_read,
     "/proc/vmallocinfo", 0},
    {"read what the kernel has allocated", CONTROL_MAY, attempt_read,
     "/proc/slabinfo", 0},
    {"read the flags of pages", CONTROL_MAY, read_words, "/proc/kpageflags", 0},
    {"read the counts of pages", CONTROL_MAY, read_words, "/proc/kpagecount",
     0},
    {"read the groups of pages", CONTROL_MAY, read_words, "/proc/kpagecgroup",
     0},
    {"read the timers", CONTROL_MAY, attempt_read, "/proc/timer_list", 0},
    {"read the interrupts", CONTROL_MAY, attempt_read, "/proc/interrupts", 0},
    {"open memory", CONTROL_MAY, attempt_open, "/dev/mem", O_RDONLY},
    {"open a terminal of the machine", CONTROL_MAY, attempt_open, "/dev/tty1",
     O_RDWR | O_NOCTTY | O_NONBLOCK},
    {"open the console", CONTROL_MAY, attempt_open, "/dev/console",
     O_RDWR | O_NOCTTY | O_NONBLOCK},
    {"open a terminal's screen", CONTROL_MAY, attempt_open, "/dev/vcs",
     O_RDONLY},
    {"open /dev/net/tun", CONTROL_MAY, attempt_open, "/dev/net/tun", O_RDWR},
    {"open /dev/loop-control", CONTROL_MAY, attempt_open, "/dev/loop-control",
     O_RDWR},
    {"open /dev/userfaultfd", CONTROL_MAY, attempt_open, "/dev/userfaultfd",
     O_RDWR},
    {"open /dev/vsock", CONTROL_MAY, attempt_open, "/dev/vsock", O_RDWR},
    {"open /dev/hwrng", CONTROL_MAY, attempt_open, "/dev/hwrng", O_RDONLY},
    {"open /dev/cpu_dma_latency", CONTROL_MAY, attempt_open,
     "/dev/cpu_dma_latency", O_RDWR},
    {"make a device with mknodat", CONTROL_MAY, make_node_by_at, NULL, S_IFCHR},
    {"make a disk with mknodat", CONTROL_MAY, make_node_by_at, NULL, S_IFBLK},
    {"make a whiteout of overlayfs", CONTROL_ALLOWED, make_whiteout, NULL, 0},
    {"set an attribute of trusted ones", CONTROL_MAY, set_attribute,
     "trusted.overlay.opaque", 0},
    {"set an attribute of security", CONTROL_MAY, set_attribute,
     "security.sessionfs", 0},
    {"make a file that nobody can remove", CONTROL_MAY, set_flags, NULL,
     FS_IMMUTABLE_FL},
    {"make a file that only grows", CONTROL_MAY, set_flags, NULL, FS_APPEND_FL},
    {"put a file to a project's account", CONTROL_MAY, set_project, NULL, 0},
    {"find a file's blocks on the disk", CONTROL_MAY, find_block, NULL, 0},
    {"give a file to root", CONTROL_ALLOWED, give_away, NULL, 0},
    {"give a file to another user", CONTROL_ALLOWED, give_away, NULL, 1001},
    {"give a file to another group", CONTROL_ALLOWED, give_to_group, NULL, 5},
    {"link a program of the system", CONTROL_MAY, link_system_file,
     "/usr/bin/env", 0},
    {"change a program's times", CONTROL_ALLOWED, change_times, "/usr/bin/env",
     0},
    {"change a program's mode", CONTROL_ALLOWED, change_mode, "/usr/bin/env",
     0},
    {"change the mode of /etc/passwd", CONTROL_ALLOWED, change_mode,
     "/etc/passwd", 0},
    {"change a device's mode", CONTROL_ALLOWED, change_mode, "/dev/null", 0},
    {"mount proc", CONTROL_ALLOWED, mount_type, "proc", 0},
    {"mount sysfs", CONTROL_MAY, mount_type, "sysfs", 0},
    {"mount control groups", CONTROL_MAY, mount_type, "cgroup2", 0},
    {"mount terminals", CONTROL_MAY, mount_type, "devpts", 0},
    {"mount message queues", CONTROL_MAY, mount_type, "mqueue", 0},
    {"mount devices", CONTROL_MAY, mount_type, "devtmpfs", 0},
    {"bind a directory", CONTROL_ALLOWED, mount_flags, "/usr", MS_BIND},
    {"bind all there is", CONTROL_ALLOWED, mount_flags, "/", MS_BIND | MS_REC},
    {"share the mounts", CONTROL_MAY, mount_flags, NULL, MS_SHARED | MS_REC},
    {"mount by fds", CONTROL_ALLOWED, mount_by_fd, NULL, 0},
    {"pick a mount", CONTROL_ALLOWED, pick_mount, NULL, 0},
    {"make /usr honour setuid", CONTROL_ALLOWED, change_mount, "/usr", 0},
    {"move the root directory", CONTROL_ALLOWED, move_root, NULL, 0},
    {"leave a root directory by an fd", CONTROL_ALLOWED, open_above, NULL, 0},
    {"write all quotas out", CONTROL_MAY, quotas, NULL, 0},
    {"learn the handle of a directory", CONTROL_ALLOWED, handle_of_root, NULL,
     0},
    {NULL, CONTROL_MAY, NULL, NULL, 0},
};
