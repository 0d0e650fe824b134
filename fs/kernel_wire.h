/*
 * Parts of the kernel's protocol that headers of this system may lack, as
 * <linux/fuse.h> of Linux 6.18 has them. Private to fs/kernel*.c.
 */
#ifndef SESSIONFS_KERNEL_WIRE_H
#define SESSIONFS_KERNEL_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

enum {
    WIRE_READ = 15, /* Opcodes. */
    WIRE_WRITE = 16,
    WIRE_RELEASE = 18,
    WIRE_FLUSH = 25,
    WIRE_INIT = 26,
    WIRE_RELEASEDIR = 29,
    WIRE_INTERRUPT = 36,
    WIRE_NOTIFY_EPOCH = 8, /* FUSE_NOTIFY_INC_EPOCH: Linux 6.16 */
};

/* What INIT offers, both words of flags as one. */
#define WIRE_PARALLEL_DIROPS   ((uint64_t)1 << 18) /* Linux 4.7 */
#define WIRE_HANDLE_KILLPRIV_2 ((uint64_t)1 << 28) /* Linux 5.11 */
#define WIRE_INIT_EXT          ((uint64_t)1 << 30) /* Linux 5.17 */
#define WIRE_PASSTHROUGH       ((uint64_t)1 << 37) /* Linux 6.9 */
#define WIRE_IO_URING          ((uint64_t)1 << 41) /* Linux 6.14 */

/* Flags of an open file. */
enum {
    WIRE_OPEN_DIRECT_IO = 1 << 0,
    WIRE_OPEN_KEEP_CACHE = 1 << 1,
    WIRE_OPEN_NOFLUSH = 1 << 5,     /* Linux 5.16 */
    WIRE_OPEN_PASSTHROUGH = 1 << 7, /* Linux 6.9 */
};

struct wire_in {
    uint32_t len;
    uint32_t opcode;
    uint64_t unique;
    uint64_t node;
    uint32_t uid;
    uint32_t gid;
    uint32_t pid;
    uint32_t ext;
};

/** @param in a request @return whether nobody waits for its answer */
static inline bool wire_is_release(const struct wire_in *in)
{
    return in->opcode == WIRE_RELEASE || in->opcode == WIRE_RELEASEDIR;
}

struct wire_out {
    uint32_t len;
    int32_t error; /* A notification's code, where unique is 0. */
    uint64_t unique;
};

struct wire_init_in {
    uint32_t major;
    uint32_t minor;
    uint32_t max_readahead;
    uint32_t flags;
    uint32_t flags2; /* From Linux 5.17 on, as what follows. */
    uint32_t unused[11];
};

struct wire_init_out {
    uint32_t major;
    uint32_t minor;
    uint32_t max_readahead;
    uint32_t flags;
    uint16_t max_background;
    uint16_t congestion_threshold;
    uint32_t max_write;
    uint32_t time_gran;
    uint16_t max_pages;
    uint16_t map_alignment;
    uint32_t flags2;
    uint32_t max_stack_depth; /* Linux 6.9 */
    uint32_t unused[6];
};

struct wire_attr {
    uint64_t ino, size, blocks, atime, mtime, ctime;
    uint32_t atime_ns, mtime_ns, ctime_ns;
    uint32_t mode, nlink, uid, gid, rdev, blksize, flags;
};

struct wire_entry {
    uint64_t node, generation, entry_valid, attr_valid;
    uint32_t entry_valid_ns, attr_valid_ns;
    struct wire_attr attr;
};

struct wire_open {
    uint64_t fh;
    uint32_t flags;
    uint32_t backing; /* With WIRE_OPEN_PASSTHROUGH. */
};

struct wire_backing {
    int32_t fd;
    uint32_t flags;
    uint64_t padding;
};

enum {
    WIRE_URING_REGISTER = 1, /* Commands of a ring. */
    WIRE_URING_COMMIT = 2,   /* An answer, and the next request. */
    WIRE_URING_COMMAND_AT = 48,
};

struct wire_uring_command {
    uint64_t flags;
    uint64_t commit;
    uint16_t queue;
    uint8_t padding[6];
};

struct wire_uring_state {
    uint64_t flags;
    uint64_t commit;
    uint32_t payload_size;
    uint32_t padding;
    uint64_t reserved;
};

/* What a ring's entry holds besides the payload. */
struct wire_uring_head {
    char in_out[128]; /* struct wire_in, or wire_out. */
    char op[128];     /* What is fixed of an operation's arguments. */
    struct wire_uring_state state;
};

#define WIRE_BACKING_OPEN  _IOW(229, 1, struct wire_backing)
#define WIRE_BACKING_CLOSE _IOW(229, 2, uint32_t)

_Static_assert(sizeof(struct wire_in) == 40, "as the kernel's");
_Static_assert(sizeof(struct wire_init_in) == 64, "as the kernel's");
_Static_assert(sizeof(struct wire_init_out) == 64, "as the kernel's");
_Static_assert(sizeof(struct wire_entry) == 128, "as the kernel's");
_Static_assert(sizeof(struct wire_uring_head) == 288, "as the kernel's");
_Static_assert(sizeof(struct wire_open) == 16, "as the kernel's");

#endif
