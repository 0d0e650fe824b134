/* What the kernel has. See check_kernel.h. */
#include "fs/check_kernel.h"

#include "core/cleanup.h"
#include "fs/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    INIT_MS = 2000,
    REQUEST_SIZE = 64 * 1024, /* More than the kernel insists on. */
    PASSTHROUGH_MINOR = 40,   /* Of the protocol: Linux 6.9. */
};

/* The first request of a mount: what the kernel speaks. */
static bool read_init(int fd, struct fuse_init_in *out)
{
    static char request[REQUEST_SIZE];
    struct pollfd ready = {fd, POLLIN, 0};
    struct fuse_in_header header;
    ssize_t n = -1;

    if (poll(&ready, 1, INIT_MS) == 1) {
        n = read(fd, request, sizeof(request));
    }
    if (n < (ssize_t)(sizeof(header) + 2 * sizeof(uint32_t))) {
        return false;
    }
    memcpy(&header, request, sizeof(header));
    memset(out, 0, sizeof(*out));
    n -= (ssize_t)sizeof(header);
    memcpy(out, request + sizeof(header),
           n < (ssize_t)sizeof(*out) ? (size_t)n : sizeof(*out));
    return header.opcode == FUSE_INIT;
}

/* In a child. */
static bool mount_and_ask(struct fuse_init_in *out)
{
    int flags = CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
    AUTO_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[64];

    (void)snprintf(options, sizeof(options),
                   "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    return fd >= 0 && unshare(flags) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("check", "/tmp", "fuse", MS_NOSUID | MS_NODEV, options) == 0 &&
           read_init(fd, out);
}

/* Whether a child could do it; its answer comes by a pipe. */
static bool ask_init(struct fuse_init_in *out)
{
    int ends[2];
    ssize_t n;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return false;
    }
    pid = fork();
    if (pid == 0) {
        struct fuse_init_in init;

        _exit(mount_and_ask(&init) &&
                      write(ends[1], &init, sizeof(init)) == sizeof(init)
                  ? EXIT_SUCCESS
                  : EXIT_FAILURE);
    }
    (void)close(ends[1]);
    n = read(ends[0], out, sizeof(*out));
    (void)close(ends[0]);
    if (pid > 0) {
        (void)waitpid(pid, NULL, 0);
    }
    return n == sizeof(*out);
}

void check_kernel_fuse(void)
{
    struct fuse_init_in init;
    bool epoch;

    (void)fflush(stdout); /* Or the child has it, too. */
    if (!ask_init(&init)) {
        (void)printf("  protocol: not known before a mount\n");
        return;
    }
    epoch = init.major == 7 && init.minor >= KERNEL_EPOCH_MINOR;
    (void)printf("  protocol: %u.%u\n", init.major, init.minor);
    (void)printf("  changes behind the kernel: %s\n",
                 epoch ? "told by an epoch, names are kept until then"
                       : "no epoch before 7.44, names are asked for each time");
    (void)printf("  passthrough: %s\n",
                 init.major == 7 && init.minor >= PASSTHROUGH_MINOR
                     ? "possible"
                     : "not before 7.40");
}

static int try_user_namespace(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : errno);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) {
        return EAGAIN;
    }
    return WEXITSTATUS(status);
}

/* Copies the first line of a file that holds a word, or "". */
static void find_line(const char *path, const char *word, char *out,
                      size_t size)
{
    FILE *stream = fopen(path, "re");
    bool found = false;

    while (stream && !found && fgets(out, (int)size, stream)) {
        found = strstr(out, word) != NULL;
    }
    if (stream) {
        (void)fclose(stream);
    }
    out[found ? strcspn(out, "\n") : 0] = '\0';
}

void check_kernel_sandboxes(void)
{
    char line[1024];
    char mount_line[1024];
    char place[1024];
    int rc;

    (void)fflush(stdout);
    rc = try_user_namespace();
    (void)printf("  user namespaces: %s\n", rc ? strerror(rc) : "yes");
    find_line("/proc/filesystems", "\toverlay", line, sizeof(line));
    (void)printf("  overlay: %s\n", *line ? "yes" : "not loaded");
    find_line("/proc/self/cgroup", "0::", line, sizeof(line));
    find_line("/proc/self/mountinfo", " - cgroup2 ", mount_line,
              sizeof(mount_line));
    if (sscanf(mount_line, "%*s %*s %*s %*s %1000s", place) == 1) {
        (void)printf("  cgroup2: mounted at %s, we are in %s\n", place,
                     *line ? line + strlen("0::") : "none");
    } else {
        (void)printf("  cgroup2: not mounted\n");
    }
}
