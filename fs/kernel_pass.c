/*
 * Files that the kernel reads and writes by itself. See kernel.h.
 *
 * The kernel knows the file behind an inode by an id, which costs no fd. It is
 * kept when the last open file is closed, up to a number of ids; and it ends
 * with the inode.
 */
#include "core/cleanup.h"
#include "core/log.h"
#include "fs/kernel_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    KEEP_MOST = 16384
};

/* In place of an id: its open files come to us for their data. */
static const uint32_t no_id = UINT32_MAX;

static uint32_t id_of(unsigned long long word)
{
    return (uint32_t)(word >> 32);
}

static uint32_t opens_of(unsigned long long word)
{
    return (uint32_t)word;
}

static unsigned long long make_word(uint32_t id, uint32_t opens)
{
    return (unsigned long long)id << 32 | opens;
}

static int ask_id(const struct kernel *kernel, int fd)
{
    const struct wire_backing map = {.fd = fd};
    int id = ioctl(kernel->fd, WIRE_BACKING_OPEN, &map);

    return id < 0 ? -errno : id;
}

/*
 * Has the kernel open the file, with the rights that this thread has now. It
 * writes with them later on; without CAP_FSETID, a write takes set-id bits
 * away, also where they were set after the file was opened. What root writes
 * leaves them.
 */
static int open_backing(const struct kernel *kernel, int fd)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct caps[2], less[2];
    int id;

    if (!kernel->shared) {
        return ask_id(kernel, fd);
    }
    if (syscall(SYS_capget, &head, caps) < 0) {
        return -errno;
    }
    memcpy(less, caps, sizeof(less));
    less[CAP_TO_INDEX(CAP_FSETID)].effective &= ~CAP_TO_MASK(CAP_FSETID);
    if (syscall(SYS_capset, &head, less) < 0) {
        return -errno;
    }
    id = ask_id(kernel, fd);
    if (syscall(SYS_capset, &head, caps) < 0) {
        log_error("cannot take a capability back: %s", strerror(errno));
    }
    return id;
}

/* The same by an fd that may be an O_PATH one: Linux takes them since 6.13. */
static int open_any(struct kernel *kernel, int fd)
{
    AUTO_FD int data = -1;
    char path[32];
    int id = -EBADF;

    if (!atomic_load_explicit(&kernel->pathless, memory_order_relaxed)) {
        id = open_backing(kernel, fd);
    }
    if (id != -EBADF && id != -EOPNOTSUPP) {
        return id;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    data = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return data < 0 ? -errno : open_backing(kernel, data);
}

static void close_id(struct kernel *kernel, uint32_t id)
{
    (void)atomic_fetch_sub(&kernel->backings, 1);
    if (ioctl(kernel->fd, WIRE_BACKING_CLOSE, &id) < 0 && errno != ENOTCONN) {
        log_debug("cannot close backing id %u: %s", id, strerror(errno));
    }
}

static uint32_t new_id(struct kernel *kernel, int fd)
{
    int id = fd < 0 || !kernel_uses(kernel, KERNEL_PASSTHROUGH)
                 ? -EOPNOTSUPP
                 : open_any(kernel, fd);

    if (id <= 0) {
        return no_id;
    }
    (void)atomic_fetch_add(&kernel->backings, 1);
    return (uint32_t)id;
}

void kernel_pass_probe(struct kernel *kernel)
{
    AUTO_FD int fd = memfd_create("sessionfs", MFD_CLOEXEC);
    AUTO_FD int path = -1;
    char name[32];
    int id;

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    path = open(name, O_PATH | O_CLOEXEC);
    id = path < 0 ? -errno : open_backing(kernel, path);
    if (id == -EBADF || id == -EOPNOTSUPP) {
        atomic_store(&kernel->pathless, true);
        id = open_backing(kernel, fd);
    }
    if (id <= 0) {
        log_debug("no passthrough: %s", strerror(-id));
        kernel_drop(kernel, KERNEL_PASSTHROUGH);
        return;
    }
    (void)atomic_fetch_add(&kernel->backings, 1);
    close_id(kernel, (uint32_t)id);
}

uint32_t kernel_pass_open(struct kernel *kernel, struct kernel_backing *backing,
                          int fd)
{
    unsigned long long word = atomic_load(&backing->word);

    for (;;) {
        uint32_t id = id_of(word);
        bool fresh = opens_of(word) == 0 && (id == 0 || id == no_id);

        if (fresh) {
            id = new_id(kernel, fd);
        }
        if (atomic_compare_exchange_strong(&backing->word, &word,
                                           make_word(id, opens_of(word) + 1))) {
            return id == no_id ? 0 : id;
        }
        if (fresh && id != no_id) {
            close_id(kernel, id);
        }
    }
}

/* Unless it is open by now. */
static void drop_id(struct kernel *kernel, struct kernel_backing *backing,
                    unsigned long long word)
{
    uint32_t id = id_of(word);

    if (opens_of(word) == 0 && id != no_id && id &&
        atomic_compare_exchange_strong(&backing->word, &word, 0)) {
        close_id(kernel, id);
    }
}

void kernel_pass_close(struct kernel *kernel, struct kernel_backing *backing)
{
    unsigned long long word = atomic_fetch_sub(&backing->word, 1) - 1;

    if (atomic_load(&kernel->backings) > KEEP_MOST) {
        drop_id(kernel, backing, word);
    }
}

void kernel_pass_leave(struct kernel *kernel, struct kernel_backing *backing)
{
    drop_id(kernel, backing, atomic_load(&backing->word));
}

void kernel_pass_end(struct kernel *kernel, struct kernel_backing *backing)
{
    uint32_t id = id_of(atomic_exchange(&backing->word, 0));

    if (id && id != no_id) {
        close_id(kernel, id);
    }
}

uint64_t kernel_pass_count(const struct kernel *kernel)
{
    return atomic_load(&kernel->backings);
}

/* ---- Answers ---- */

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)

int kernel_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
                      uint32_t backing)
{
    struct fuse_file_info copy = *fi;

    copy.backing_id = (int32_t)backing;
    return fuse_reply_open(req, &copy);
}

int kernel_reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
                        const struct fuse_file_info *fi, uint32_t backing)
{
    struct fuse_file_info copy = *fi;

    copy.backing_id = (int32_t)backing;
    return fuse_reply_create(req, entry, &copy);
}

#else /* It knows of no such ids: the answers are written as bytes. */

static struct wire_open open_out(const struct fuse_file_info *fi,
                                 uint32_t backing)
{
    struct wire_open out = {
        .fh = fi->fh, .flags = WIRE_OPEN_PASSTHROUGH, .backing = backing};

    out.flags |= fi->direct_io ? WIRE_OPEN_DIRECT_IO : 0;
    out.flags |= fi->keep_cache ? WIRE_OPEN_KEEP_CACHE : 0;
    out.flags |= fi->noflush ? WIRE_OPEN_NOFLUSH : 0;
    return out;
}

int kernel_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
                      uint32_t backing)
{
    const struct wire_open out = open_out(fi, backing);

    return backing ? fuse_reply_buf(req, (const void *)&out, sizeof(out))
                   : fuse_reply_open(req, fi);
}

static uint64_t seconds(double s)
{
    return s > 0 ? (uint64_t)s : 0;
}

static uint32_t rest_ns(double s)
{
    return s > 0 ? (uint32_t)((s - (double)seconds(s)) * 1e9) : 0;
}

static struct wire_attr attr_out(const struct stat *attr)
{
    return (struct wire_attr){
        .ino = attr->st_ino,
        .size = (uint64_t)attr->st_size,
        .blocks = (uint64_t)attr->st_blocks,
        .atime = (uint64_t)attr->st_atim.tv_sec,
        .mtime = (uint64_t)attr->st_mtim.tv_sec,
        .ctime = (uint64_t)attr->st_ctim.tv_sec,
        .atime_ns = (uint32_t)attr->st_atim.tv_nsec,
        .mtime_ns = (uint32_t)attr->st_mtim.tv_nsec,
        .ctime_ns = (uint32_t)attr->st_ctim.tv_nsec,
        .mode = attr->st_mode,
        .nlink = (uint32_t)attr->st_nlink,
        .uid = attr->st_uid,
        .gid = attr->st_gid,
        .rdev = (uint32_t)attr->st_rdev,
        .blksize = (uint32_t)attr->st_blksize,
    };
}

int kernel_reply_create(fuse_req_t req, const struct fuse_entry_param *entry,
                        const struct fuse_file_info *fi, uint32_t backing)
{
    const struct {
        struct wire_entry entry;
        struct wire_open open;
    } out = {
        .entry = {.node = entry->ino,
                  .generation = entry->generation,
                  .entry_valid = seconds(entry->entry_timeout),
                  .entry_valid_ns = rest_ns(entry->entry_timeout),
                  .attr_valid = seconds(entry->attr_timeout),
                  .attr_valid_ns = rest_ns(entry->attr_timeout),
                  .attr = attr_out(&entry->attr)},
        .open = open_out(fi, backing),
    };

    return backing ? fuse_reply_buf(req, (const void *)&out, sizeof(out))
                   : fuse_reply_create(req, entry, fi);
}

#endif
