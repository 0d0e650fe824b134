/* Negotiation and notifications. See kernel.h. */
#include "fs/kernel.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/mutex.h"
#include "fs/inode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_BACKGROUND = 1024,
    EPOCH_NOTIFY = 8, /* FUSE_NOTIFY_INC_EPOCH */
};

struct kernel {
    /* Written in INIT, before other requests come. */
    unsigned major;
    unsigned minor;
    bool epoch;
    struct mutex lock;
    struct cond change;
    unsigned telling GUARDED; /* by lock: threads that write to the kernel. */
    bool ended GUARDED;       /* by lock */
};

/* What libfuse 3.14 cannot send: a notification without a body. */
struct notify_header {
    uint32_t len;
    int32_t error; /* The notification's code. */
    uint64_t unique;
};

struct kernel *kernel_new(void)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (kernel) {
        mutex_init(&kernel->lock);
        cond_init(&kernel->change);
    }
    return kernel;
}

void kernel_free(struct kernel *kernel)
{
    if (kernel) {
        cond_done(&kernel->change);
        mutex_done(&kernel->lock);
        free(kernel);
    }
}

bool kernel_tell_begin(struct kernel *kernel)
{
    bool on;

    mutex_lock(&kernel->lock);
    on = !kernel->ended;
    kernel->telling += on;
    mutex_unlock(&kernel->lock);
    return on;
}

void kernel_tell_end(struct kernel *kernel)
{
    mutex_lock(&kernel->lock);
    kernel->telling--;
    cond_broadcast(&kernel->change);
    mutex_unlock(&kernel->lock);
}

void kernel_end(struct kernel *kernel)
{
    mutex_lock(&kernel->lock);
    kernel->ended = true;
    while (kernel->telling) {
        (void)cond_wait(&kernel->change, &kernel->lock, DEADLINE_NONE);
    }
    mutex_unlock(&kernel->lock);
}

/* With the kernel's default of 12, one session's stuck readahead stops the
 * others'. Set-id bits are the workspace's own to clear. */
void kernel_init(struct kernel *kernel, struct fuse_conn_info *conn)
{
    const unsigned drop = FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_WRITEBACK_CACHE;

    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
    conn->want &= ~drop;
    conn->want |= conn->capable & FUSE_CAP_AUTO_INVAL_DATA;
    kernel->major = conn->proto_major;
    kernel->minor = conn->proto_minor;
    kernel->epoch =
        conn->proto_major == 7 && conn->proto_minor >= KERNEL_EPOCH_MINOR;
}

void kernel_version(const struct kernel *kernel, char *out, size_t size)
{
    (void)snprintf(out, size, "%u.%u", kernel->major, kernel->minor);
}

double kernel_timeout_s(const struct kernel *kernel)
{
    return kernel->epoch ? 1.0 : 0.0;
}

static void bump_epoch(struct fs *fs)
{
    struct notify_header header = {sizeof(header), EPOCH_NOTIFY, 0};
    ssize_t n = write(fuse_session_fd(fs->fuse), &header, sizeof(header));

    if (n < 0 && errno != ENODEV && errno != ENOTCONN) {
        log_debug("cannot bump the epoch: %s", strerror(errno));
    }
}

void kernel_changed(struct fs *fs, const struct session *session)
{
    fuse_ino_t *numbers = NULL;
    size_t n;

    if (!kernel_tell_begin(fs->kernel)) {
        return;
    }
    if (fs->kernel->epoch) {
        bump_epoch(fs);
    }
    n = inode_open_numbers(fs->inodes, session, &numbers);
    for (size_t i = 0; i < n; i++) {
        (void)fuse_lowlevel_notify_inval_inode(fs->fuse, numbers[i], -1, 0);
    }
    free(numbers);
    kernel_tell_end(fs->kernel);
}
