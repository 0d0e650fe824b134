/* What was seen at the last checkpoint. See seen.h. */
#include "providers/local/seen.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "providers/local/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SEEN     "seen"
#define SEEN_NEW "seen.new"

enum {
    VERSION = 2,
    SIZE_MAX_KEPT = 256 * 1024 * 1024
};

struct head_record {
    uint32_t version;
    char boot[BOOT_SIZE]; /* Which start of the machine. */
    uint64_t number;
    uint64_t upper;
    uint64_t top;
    uint64_t size; /* Of all that follows. */
};

/* A node; its name follows, then what is below it. */
struct node_record {
    uint64_t ino;
    int64_t ctime_ns;
    uint64_t size;
    uint64_t moved;
    uint32_t mode;
    uint32_t links;
    uint32_t count;
    uint16_t name_size;
    uint8_t whiteout;
    uint8_t opaque;
    uint8_t loose;
    uint8_t unused[7];
};

/* ---- Writing ---- */

static int add_node(struct buf *buf, const struct scan_node *node)
{
    const struct node_record record = {
        .ino = node->ino,
        .ctime_ns = node->ctime_ns,
        .size = node->size,
        .moved = node->moved,
        .mode = node->mode,
        .links = node->links,
        .count = node->count,
        .name_size = (uint16_t)strlen(node->name),
        .whiteout = node->whiteout,
        .opaque = node->opaque,
        .loose = node->loose,
    };
    int rc = buf_add(buf, &record, sizeof(record));

    return rc == 0 ? buf_add(buf, node->name, record.name_size) : rc;
}

/* A directory before what is in it. */
static int add_tree(struct buf *buf, struct scan_node *top)
{
    struct scan_node *node = top;
    int rc = add_node(buf, top);

    while (rc == 0) {
        if (node->at < node->count) {
            node = node->below[node->at++];
            rc = add_node(buf, node);
            continue;
        }
        node->at = 0;
        if (node == top) {
            return 0;
        }
        node = node->parent;
    }
    /* It is walked again by others. */
    for (; node; node = node == top ? NULL : node->parent) {
        node->at = 0;
    }
    return rc;
}

static bool write_file(int dir, const struct buf *buf)
{
    AUTO_FD int fd =
        openat(dir, SEEN_NEW,
               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t done = 0;

    while (fd >= 0 && done < buf->size) {
        ssize_t n = write(fd, buf->data + done, buf->size - done);

        if (n < 0 && errno != EINTR) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    /* Some file systems write a file out that takes another one's place. */
    (void)unlinkat(dir, SEEN, 0);
    return fd >= 0 && renameat(dir, SEEN_NEW, dir, SEEN) == 0;
}

void seen_write(int dir, const struct snapshot_state *state)
{
    struct head_record head = {.version = VERSION,
                               .number = state->number,
                               .upper = state->upper,
                               .top = state->top};
    struct buf buf = BUF_INIT(SIZE_MAX_KEPT);
    int rc;

    boot_read(head.boot);
    rc = buf_add(&buf, &head, sizeof(head));
    if (rc == 0) {
        rc = add_tree(&buf, state->tree);
    }
    if (rc == 0) {
        head.size = buf.size - sizeof(head);
        memcpy(buf.data, &head, sizeof(head));
    }
    if (rc < 0 || !write_file(dir, &buf)) {
        (void)unlinkat(dir, SEEN, 0);
    }
    buf_done(&buf);
}

void seen_drop(int dir)
{
    (void)unlinkat(dir, SEEN, 0);
}

/* ---- Reading ---- */

static bool take(const char **at, size_t *left, void *out, size_t size)
{
    if (*left < size) {
        return false;
    }
    memcpy(out, *at, size);
    *at += size;
    *left -= size;
    return true;
}

static struct scan_node *take_node(const char **at, size_t *left)
{
    struct node_record record;
    struct scan_node *node;

    if (!take(at, left, &record, sizeof(record)) ||
        record.name_size > NAME_MAX || record.count > *left) {
        return NULL;
    }
    node = calloc(1, sizeof(*node) + record.name_size + 1);
    if (node && record.count) {
        node->below = calloc(record.count, sizeof(struct scan_node *));
    }
    if (!node || (record.count && !node->below) ||
        !take(at, left, node->name, record.name_size)) {
        scan_free(node);
        return NULL;
    }
    node->ino = record.ino;
    node->ctime_ns = record.ctime_ns;
    node->size = record.size;
    node->moved = record.moved;
    node->mode = record.mode;
    node->links = record.links;
    node->at = record.count; /* So many are to come. */
    node->whiteout = record.whiteout;
    node->opaque = record.opaque;
    node->loose = record.loose;
    return node;
}

static struct scan_node *take_tree(const char *at, size_t left)
{
    struct scan_node *top = take_node(&at, &left);
    struct scan_node *node = top;

    while (node) {
        if (node->count == node->at) {
            node->at = 0;
            node = node == top ? NULL : node->parent;
            continue;
        }
        node->below[node->count] = take_node(&at, &left);
        if (!node->below[node->count]) {
            scan_free(top);
            return NULL;
        }
        node->below[node->count]->parent = node;
        node = node->below[node->count++];
    }
    return top;
}

static struct snapshot_state *read_state(int fd, const struct head_record *head)
{
    struct snapshot_state *state = calloc(1, sizeof(*state));
    AUTO_FREE char *data = malloc(head->size + 1);
    size_t done = 0;
    ssize_t n = 1;

    while (data && done < head->size && n > 0) {
        n = read(fd, data + done, head->size - done);
        done += n > 0 ? (size_t)n : 0;
    }
    if (state && data) {
        list_init(&state->link);
        state->number = head->number;
        state->upper = head->upper;
        state->top = head->top;
        state->tree = take_tree(data, done);
    }
    if (state && !state->tree) {
        free(state);
        return NULL;
    }
    return state;
}

struct snapshot_state *seen_read(int dir)
{
    AUTO_FD int fd = openat(dir, SEEN, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct head_record head;
    char boot[BOOT_SIZE];

    boot_read(boot);
    if (fd < 0 || read(fd, &head, sizeof(head)) != (ssize_t)sizeof(head) ||
        head.version != VERSION || memcmp(head.boot, boot, BOOT_SIZE) != 0 ||
        head.size > SIZE_MAX_KEPT) {
        return NULL;
    }
    return read_state(fd, &head);
}
