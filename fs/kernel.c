/* Negotiation. See kernel.h. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "fs/kernel_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_BACKGROUND = 1024,
    PAGE = 4096,
    PAYLOAD_LEAST = 8192, /* FUSE_MIN_READ_BUFFER */
    STACK_DEPTH = 2,      /* The files behind ours may be an overlay's. */
};

static const char *const names[KERNEL_FEATURES] = {
    [KERNEL_EPOCH] = "epoch",
    [KERNEL_NEGATIVE] = "negative",
    [KERNEL_LISTINGS] = "listings",
    [KERNEL_READDIRPLUS] = "readdirplus",
    [KERNEL_PARALLEL_DIRS] = "parallel_dirs",
    [KERNEL_KILLPRIV] = "killpriv",
    [KERNEL_NOFLUSH] = "noflush",
    [KERNEL_PASSTHROUGH] = "passthrough",
    [KERNEL_IO_URING] = "io_uring",
    [KERNEL_NEAR] = "near",
    [KERNEL_YIELD] = "yield",
};

const char *kernel_feature_name(enum kernel_feature feature)
{
    return names[feature];
}

static int find_feature(const char *name, size_t len)
{
    for (int i = 0; i < KERNEL_FEATURES; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0) {
            return i;
        }
    }
    return -1;
}

int kernel_features_parse(const char *text, unsigned *out, struct err *err)
{
    unsigned mask = 0;

    while (*text) {
        size_t len = strcspn(text, ":");
        int found = find_feature(text, len);

        if (found < 0) {
            return err_set(err, EINVAL,
                           "the kernel has no feature '%.*s'; there are "
                           "epoch, negative, listings, readdirplus, "
                           "parallel_dirs, killpriv, noflush, passthrough, "
                           "io_uring, near, yield",
                           (int)(len < 64 ? len : 64), text);
        }
        mask |= 1U << found;
        text += len + (text[len] == ':');
    }
    *out = mask;
    return 0;
}

struct kernel *kernel_new(unsigned without, bool shared)
{
    struct kernel *kernel = calloc(1, sizeof(*kernel));

    if (kernel) {
        kernel->without = without;
        kernel->shared = shared;
        atomic_init(&kernel->fd, -1);
        kernel_near_init(&kernel->near);
        kernel_rest_init(&kernel->rest);
        mutex_init(&kernel->lock);
        cond_init(&kernel->change);
    }
    return kernel;
}

void kernel_free(struct kernel *kernel)
{
    if (kernel) {
        kernel_rest_done(&kernel->rest);
        cond_done(&kernel->change);
        mutex_done(&kernel->lock);
        free(kernel);
    }
}

bool kernel_uses(const struct kernel *kernel, enum kernel_feature feature)
{
    return atomic_load_explicit(&kernel->uses, memory_order_relaxed) >>
               feature &
           1;
}

static void use(struct kernel *kernel, enum kernel_feature feature, bool there)
{
    if (there && !(kernel->without >> feature & 1)) {
        (void)atomic_fetch_or(&kernel->uses, 1U << feature);
    }
}

void kernel_drop(struct kernel *kernel, enum kernel_feature feature)
{
    (void)atomic_fetch_and(&kernel->uses, ~(1U << feature));
}

/* ---- Between libfuse and the kernel ---- */

static void note_init(struct kernel *kernel, const void *request, size_t size)
{
    struct wire_in head;
    struct wire_init_in body;

    memcpy(&head, request, sizeof(head));
    memset(&body, 0, sizeof(body));
    size -= sizeof(head);
    memcpy(&body, (const char *)request + sizeof(head),
           size < sizeof(body) ? size : sizeof(body));
    kernel->init = head.unique;
    kernel->offered = body.flags;
    if (body.flags & WIRE_INIT_EXT) {
        kernel->offered |= (uint64_t)body.flags2 << 32;
    }
}

/* The request that is interrupted may have come another way. */
static void note_interrupt(struct kernel *kernel, void *request)
{
    uint64_t unique;
    char *at = (char *)request + sizeof(struct wire_in);

    memcpy(&unique, at, sizeof(unique));
    kernel_uring_interrupt(kernel->uring, &unique);
    memcpy(at, &unique, sizeof(unique));
}

/* Who takes a request just while the file system is unmounted is told that it
 * was aborted, which libfuse knows for a failure. To others the device is gone:
 * ENODEV. */
static ssize_t read_device(int fd, void *out, size_t size)
{
    ssize_t n = read(fd, out, size);

    if (n < 0 && errno == ECONNABORTED) {
        errno = ENODEV;
    }
    return n;
}

static ssize_t read_request(int fd, void *out, size_t size, void *userdata)
{
    const struct fs *fs = userdata;
    ssize_t n = read_device(fd, out, size);
    struct wire_in head;

    if (n >= (ssize_t)sizeof(head)) {
        memcpy(&head, out, sizeof(head));
        if (head.opcode == WIRE_INIT) {
            note_init(fs->kernel, out, (size_t)n);
        } else if (head.opcode == WIRE_INTERRUPT &&
                   n >= (ssize_t)(sizeof(head) + sizeof(uint64_t))) {
            note_interrupt(fs->kernel, out);
        }
        kernel_rest_note(&fs->kernel->rest);
        if (kernel_uses(fs->kernel, KERNEL_NEAR)) {
            kernel_near_follow(&fs->kernel->near, &head);
        }
    }
    return n;
}

/* Adds to the answer to INIT what libfuse does not know or does not send. */
static void add_to_init(const struct kernel *kernel, struct wire_init_out *out)
{
    uint64_t flags = 0;

    if (kernel_uses(kernel, KERNEL_PARALLEL_DIRS)) {
        flags |= WIRE_PARALLEL_DIROPS;
    }
    if (kernel_uses(kernel, KERNEL_KILLPRIV)) {
        flags |= WIRE_HANDLE_KILLPRIV_2;
    }
    if (kernel_uses(kernel, KERNEL_PASSTHROUGH)) {
        flags |= WIRE_PASSTHROUGH | WIRE_INIT_EXT;
        out->max_stack_depth = STACK_DEPTH;
    }
    if (kernel_uses(kernel, KERNEL_IO_URING)) {
        flags |= WIRE_IO_URING | WIRE_INIT_EXT;
    }
    out->flags |= (uint32_t)flags;
    out->flags2 |= (uint32_t)(flags >> 32);
}

/* Before the kernel is told that they are used, the rings must be there. */
static void make_rings(const struct fs *fs, const struct wire_init_out *out)
{
    struct kernel *kernel = fs->kernel;
    size_t pages = (size_t)out->max_pages * PAGE;
    size_t payload = out->max_write > pages ? out->max_write : pages;
    struct err err = ERR_INIT;

    payload = payload > PAYLOAD_LEAST ? payload : PAYLOAD_LEAST;
    if (kernel_uses(kernel, KERNEL_IO_URING) &&
        kernel_uring_new(fs->fuse, atomic_load(&kernel->fd), payload,
                         &kernel->rest, &kernel->uring, &err) < 0) {
        log_warning("%s", err.msg);
        kernel_drop(kernel, KERNEL_IO_URING);
    }
    use(kernel, KERNEL_NEAR,
        !kernel->uring && sysconf(_SC_NPROCESSORS_ONLN) > 1);
    use(kernel, KERNEL_YIELD,
        kernel->uring || kernel_uses(kernel, KERNEL_NEAR));
    if (kernel_uses(kernel, KERNEL_YIELD) &&
        !kernel_rest_begin(&kernel->rest)) {
        kernel_drop(kernel, KERNEL_YIELD);
    }
}

static ssize_t answer_init(const struct fs *fs, int fd, struct iovec *iov,
                           int count)
{
    struct kernel *kernel = fs->kernel;
    struct wire_init_out out;
    ssize_t n;

    memcpy(&out, iov[1].iov_base, sizeof(out));
    make_rings(fs, &out);
    add_to_init(kernel, &out);
    memcpy(iov[1].iov_base, &out, sizeof(out));
    n = writev(fd, iov, count);
    if (n >= 0 && kernel->uring) {
        kernel_uring_start(kernel->uring);
    }
    if (n >= 0 && kernel_uses(kernel, KERNEL_PASSTHROUGH)) {
        kernel_pass_probe(kernel);
    }
    return n;
}

static ssize_t write_device(struct kernel *kernel, int fd,
                            const struct iovec *iov, int count)
{
    const struct wire_out *head = iov[0].iov_base;
    bool last =
        kernel_near_waits(head->unique) && kernel_rest_sink(&kernel->rest);
    ssize_t n = writev(fd, iov, count);
    int code = errno;

    if (last) {
        kernel_rest_rise();
        errno = code;
    }
    return n;
}

static ssize_t write_answer(int fd, struct iovec *iov, int count,
                            void *userdata)
{
    const struct fs *fs = userdata;
    struct kernel *kernel = fs->kernel;
    const struct wire_out *head = iov[0].iov_base;
    ssize_t size;

    if (kernel->uring && kernel_uring_answer(iov, count, &size)) {
        return size;
    }
    if (kernel->init && head->unique == kernel->init) {
        kernel->init = 0;
        if (count == 2 && head->error == 0 &&
            iov[1].iov_len == sizeof(struct wire_init_out)) {
            return answer_init(fs, fd, iov, count);
        }
    }
    return write_device(kernel, fd, iov, count);
}

int kernel_attach(struct fs *fs, struct err *err)
{
    static const struct fuse_custom_io io = {.read = read_request,
                                             .writev = write_answer};
    int fd = fuse_session_fd(fs->fuse);
    int rc = fuse_session_custom_io(fs->fuse, &io, fd);

    atomic_store(&fs->kernel->fd, fd);
    return rc < 0 ? err_set(err, -rc, "cannot speak with the kernel") : 0;
}

/* With the kernel's default of 12, one session's stuck readahead stops the
 * others'. Set-id bits are the workspace's own to clear. */
static void ask_libfuse(const struct kernel *kernel,
                        struct fuse_conn_info *conn)
{
    unsigned drop = FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_WRITEBACK_CACHE;

    if (!kernel_uses(kernel, KERNEL_READDIRPLUS)) {
        drop |= FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO;
    }
    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
    conn->want &= ~drop;
    conn->want |= conn->capable & FUSE_CAP_AUTO_INVAL_DATA;
}

void kernel_init(struct kernel *kernel, struct fuse_conn_info *conn)
{
    const uint64_t offered = kernel->offered;
    bool epoch =
        conn->proto_major == 7 && conn->proto_minor >= KERNEL_EPOCH_MINOR;

    kernel->major = conn->proto_major;
    kernel->minor = conn->proto_minor;
    use(kernel, KERNEL_EPOCH, epoch);
    epoch = kernel_uses(kernel, KERNEL_EPOCH);
    use(kernel, KERNEL_NEGATIVE, epoch);
    use(kernel, KERNEL_LISTINGS, epoch);
    use(kernel, KERNEL_READDIRPLUS, conn->capable & FUSE_CAP_READDIRPLUS);
    use(kernel, KERNEL_PARALLEL_DIRS, offered & WIRE_PARALLEL_DIROPS);
    use(kernel, KERNEL_KILLPRIV, offered & WIRE_HANDLE_KILLPRIV_2);
    use(kernel, KERNEL_NOFLUSH, true);
    use(kernel, KERNEL_PASSTHROUGH, offered & WIRE_PASSTHROUGH);
    use(kernel, KERNEL_IO_URING, offered & WIRE_IO_URING);
    ask_libfuse(kernel, conn);
}

void kernel_version(const struct kernel *kernel, char *out, size_t size)
{
    (void)snprintf(out, size, "%u.%u", kernel->major, kernel->minor);
}

/* ---- The end ---- */

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
    kernel_uring_free(TAKE_PTR(kernel->uring));
    atomic_store(&kernel->fd, -1); /* All it knows ends with the connection. */
}
