/* Changes that are not sent yet. See remote_stage.h. */
#include "core/remote_stage.h"

#include "core/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- Coming and going ---- */

/* Adds a stage that is entered; the node has none. */
static struct remote_stage *attach(struct remote *r, struct remote_node *node)
    REQUIRES(r->base.lock)
{
    struct remote_stage *stage = calloc(1, sizeof(*stage));

    if (stage) {
        stage->fd = -1;
        stage->busy = true;
        stage->appended = true;
        (void)ws_node_ref_locked(&node->base);
        stage->node = node;
        node->stage = stage;
        list_add(&r->staged, &stage->link);
    }
    return stage;
}

void remote_stage_leave(struct remote_stage *stage, bool end)
{
    struct remote_node *node = stage->node;
    struct remote *r = remote_tree(node);

    mutex_lock(&r->base.lock);
    stage->busy = false;
    end = (end || !node->opens) && !stage->sending;
    if (end) {
        node->stage = NULL;
        list_remove(&stage->link);
        r->staged_bytes -= stage->bytes;
    }
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
    if (end) {
        if (stage->fd >= 0) {
            (void)close(stage->fd);
        }
        free(stage->dirty);
        free(stage);
        ws_node_unref(&node->base);
    }
}

/* What the engine has is what the stage is made of. */
static int begin_of_theirs(struct remote_stage *stage,
                           const struct limits *limits, struct err *err)
{
    struct remote *r = remote_tree(stage->node);
    struct remote_path path;
    struct stat attr;
    int rc = remote_path(stage->node, NULL, &path, err);

    if (rc == 0) {
        rc = remote_attr(r, path.text, limits, &attr, err);
    }
    if (rc == 0 && !S_ISREG(attr.st_mode)) {
        rc = err_set(err, ESTALE, "it is no file any more");
    }
    if (rc == 0) {
        rc = remote_private_file(r->sandbox.dir, err);
    }
    if (rc < 0) {
        return rc;
    }
    stage->was = attr;
    stage->base = attr.st_size;
    mutex_lock(&r->base.lock);
    stage->attr = attr;
    stage->fd = rc;
    mutex_unlock(&r->base.lock);
    return 0;
}

static bool may_enter(const struct remote_stage *stage, unsigned how)
{
    return !stage->busy && (!stage->sending || (how & REMOTE_BESIDE));
}

/* Waits for one that is there; NULL where none is and none is to be made. */
static int wait_to_enter(struct remote *r, struct remote_node *node,
                         unsigned how, const struct limits *limits,
                         struct remote_stage **out, bool *made, struct err *err)
{
    int rc = 0;

    *made = false;
    mutex_lock(&r->base.lock);
    while (rc == 0 && ((node->stage && !may_enter(node->stage, how)) ||
                       remote_is_moving(r, node))) {
        rc = remote_wait(r, limits, err);
    }
    if (rc == 0 && node->stage) {
        node->stage->busy = true;
    } else if (rc == 0 && (how & REMOTE_MAKE)) {
        *made = attach(r, node) != NULL;
        rc = *made ? 0 : err_no_memory(err);
    }
    *out = rc == 0 ? node->stage : NULL;
    mutex_unlock(&r->base.lock);
    return rc;
}

int remote_stage_enter(struct remote_node *node, unsigned how,
                       const struct limits *limits, struct remote_stage **out,
                       struct err *err)
{
    struct remote_stage *stage;
    bool made;
    int rc =
        wait_to_enter(remote_tree(node), node, how, limits, &stage, &made, err);

    if (rc == 0 && made) {
        rc = begin_of_theirs(stage, limits, err);
        if (rc < 0) {
            remote_stage_leave(stage, true);
        }
    }
    if (rc == 0) {
        *out = stage;
    }
    return rc;
}

int remote_stage_fresh(struct remote_node *node, mode_t mode, bool any,
                       struct remote_stage **out, struct err *err)
{
    struct remote *r = remote_tree(node);
    int fd = remote_private_file(r->sandbox.dir, err);
    struct remote_stage *stage;
    struct stat attr = {
        .st_mode = S_IFREG | (mode & 07777), .st_nlink = 1, .st_blksize = 4096};

    if (fd < 0) {
        return fd;
    }
    (void)clock_gettime(CLOCK_REALTIME, &attr.st_mtim);
    attr.st_atim = attr.st_ctim = attr.st_mtim;
    mutex_lock(&r->base.lock);
    stage = attach(r, node);
    if (stage) {
        stage->fresh = true;
        stage->attr = attr;
        stage->fd = fd;
    }
    mutex_unlock(&r->base.lock);
    if (!stage) {
        (void)close(fd);
        return err_no_memory(err);
    }
    stage->any = any;
    stage->whole = true;
    stage->written = true;
    stage->mask = PROVIDER_ATTR_MODE;
    stage->changed = true;
    *out = stage;
    return 0;
}

bool remote_stage_attr(struct remote_node *node, struct stat *out)
{
    struct remote *r = remote_tree(node);
    bool staged;

    mutex_lock(&r->base.lock);
    staged = node->stage && node->stage->fd >= 0;
    if (staged) {
        *out = node->stage->attr;
        out->st_nlink = node->stage->orphan ? 0 : out->st_nlink;
    }
    mutex_unlock(&r->base.lock);
    return staged;
}

/* ---- Chunks ---- */

static bool has_chunk(const struct remote_stage *stage, uint64_t chunk)
{
    return stage->whole || (chunk < stage->n_dirty && stage->dirty[chunk]) ||
           (off_t)(chunk * REMOTE_CHUNK) >= stage->base;
}

/* Makes the map of chunks long enough. */
static int widen(struct remote_stage *stage, uint64_t chunks, struct err *err)
{
    bool *wide;

    if (chunks > REMOTE_CHUNKS_MOST) {
        return err_set(
            err, EFBIG, "a file of over %u TiB",
            (unsigned)(REMOTE_CHUNKS_MOST >> 20) * (REMOTE_CHUNK >> 10) >> 10);
    }
    if (stage->whole || chunks <= stage->n_dirty) {
        return 0;
    }
    chunks = chunks > 2 * stage->n_dirty ? chunks : 2 * stage->n_dirty;
    wide = realloc(stage->dirty, chunks * sizeof(*wide));
    if (!wide) {
        return err_no_memory(err);
    }
    memset(wide + stage->n_dirty, 0, (chunks - stage->n_dirty) * sizeof(*wide));
    stage->dirty = wide;
    stage->n_dirty = chunks;
    return 0;
}

/* Reads what the engine has of it; what it does not have is zeros. */
static ssize_t read_theirs(struct remote_stage *stage, char *out, size_t size,
                           uint64_t offset, const struct limits *limits,
                           struct err *err)
{
    struct remote *r = remote_tree(stage->node);
    struct remote_path path;
    const struct remote_range range = {.path = path.text, .attr = &stage->was};
    uint64_t left =
        offset < (uint64_t)stage->base ? (uint64_t)stage->base - offset : 0;
    size_t theirs = size < left ? size : (size_t)left;
    ssize_t n = 0;

    if (theirs) {
        n = remote_stage_path(stage, &path, err);
        n = n < 0 ? n
                  : remote_content(r, &range, out, theirs, offset, limits, err);
    }
    if (n < 0) {
        return n;
    }
    memset(out + n, 0, size - (size_t)n);
    return (ssize_t)size;
}

static int write_all(int fd, const char *data, size_t size, uint64_t offset,
                     struct err *err)
{
    for (size_t done = 0; done < size;) {
        ssize_t n =
            pwrite(fd, data + done, size - done, (off_t)(offset + done));

        if (n <= 0) {
            errno = n < 0 ? errno : EIO;
            return err_errno(err, "cannot stage");
        }
        done += (size_t)n;
    }
    return 0;
}

/* What is cached, and can be had again, gives way. */
static int put_bytes(const struct remote_stage *stage, const char *data,
                     size_t size, uint64_t offset, struct err *err)
{
    int rc = write_all(stage->fd, data, size, offset, err);

    if (rc == -ENOSPC || rc == -EDQUOT) {
        remote_data_clear(remote_tree(stage->node)->data);
        err_clear(err);
        rc = write_all(stage->fd, data, size, offset, err);
    }
    return rc;
}

/* Brings a chunk here that is to be changed in part. */
static int load_chunk(struct remote_stage *stage, uint64_t chunk,
                      const struct limits *limits, struct err *err)
{
    uint64_t at = chunk * REMOTE_CHUNK;
    uint64_t left = (uint64_t)stage->base - at;
    size_t size = left < REMOTE_CHUNK ? (size_t)left : REMOTE_CHUNK;
    char *bytes = malloc(size);
    ssize_t n;

    if (!bytes) {
        return err_no_memory(err);
    }
    n = read_theirs(stage, bytes, size, at, limits, err);
    n = n < 0 ? n : put_bytes(stage, bytes, size, at, err);
    free(bytes);
    return (int)n;
}

static bool covers(uint64_t offset, size_t size, uint64_t chunk)
{
    uint64_t at = chunk * REMOTE_CHUNK;

    return offset <= at && offset + size >= at + REMOTE_CHUNK;
}

/* Makes chunks ours, of which some bytes stay the engine's. */
static int take_chunks(struct remote_stage *stage, uint64_t offset, size_t size,
                       const struct limits *limits, struct err *err)
{
    uint64_t first = offset / REMOTE_CHUNK;
    uint64_t end = (offset + size + REMOTE_CHUNK - 1) / REMOTE_CHUNK;
    int rc = widen(stage, end, err);

    for (uint64_t chunk = first; rc == 0 && !stage->whole && chunk < end;
         chunk++) {
        bool covered = covers(offset, size, chunk);

        if (!covered && !has_chunk(stage, chunk)) {
            rc = load_chunk(stage, chunk, limits, err);
        }
        stage->dirty[chunk] = stage->dirty[chunk] || (rc == 0 && !covered);
    }
    return rc;
}

/* The others are ours when they have been written. */
static void cover_chunks(struct remote_stage *stage, uint64_t offset,
                         size_t size)
{
    uint64_t first = (offset + REMOTE_CHUNK - 1) / REMOTE_CHUNK;

    for (uint64_t chunk = first; !stage->whole && covers(offset, size, chunk);
         chunk++) {
        stage->dirty[chunk] = true;
    }
}

/* ---- Reading and writing ---- */

ssize_t remote_stage_read(struct remote_stage *stage, void *out, size_t size,
                          uint64_t offset, const struct limits *limits,
                          struct err *err)
{
    uint64_t end = (uint64_t)stage->attr.st_size;
    size_t done = 0;

    while (done < size && offset + done < end) {
        uint64_t chunk = (offset + done) / REMOTE_CHUNK;
        uint64_t left = (chunk + 1) * REMOTE_CHUNK - (offset + done);
        size_t part = size - done;
        char *to = (char *)out + done;
        ssize_t n;

        part = part < left ? part : (size_t)left;
        left = end - (offset + done);
        part = part < left ? part : (size_t)left;
        if (has_chunk(stage, chunk)) {
            n = pread(stage->fd, to, part, (off_t)(offset + done));
            n = n < 0 ? err_errno(err, "cannot read what is staged") : n;
            if (n >= 0) { /* A hole at its end. */
                memset(to + n, 0, part - (size_t)n);
                n = (ssize_t)part;
            }
        } else {
            n = read_theirs(stage, to, part, offset + done, limits, err);
        }
        if (n < 0) {
            return n;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* Accounts for what lies on this machine's disk. */
static void account(struct remote_stage *stage)
{
    struct remote *r = remote_tree(stage->node);
    struct stat attr;

    if (fstat(stage->fd, &attr) == 0) {
        uint64_t bytes = (uint64_t)attr.st_blocks * 512;

        mutex_lock(&r->base.lock);
        r->staged_bytes += bytes - stage->bytes;
        stage->bytes = bytes;
        mutex_unlock(&r->base.lock);
    }
}

static int check_room(struct remote_stage *stage, size_t size, struct err *err)
{
    struct remote *r = remote_tree(stage->node);
    bool room;

    mutex_lock(&r->base.lock);
    room = r->staged_bytes + size <= r->view.stage_bytes;
    mutex_unlock(&r->base.lock);
    return room ? 0
                : err_set(err, ENOSPC,
                          "more than %llu MiB would be written and not sent "
                          "(-o unsent_size)",
                          (unsigned long long)(r->view.stage_bytes >> 20));
}

/* Notes a change of the content; a time that was set is over. */
static void touch(struct remote_stage *stage, off_t size)
{
    struct remote *r = remote_tree(stage->node);
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    stage->mask &= ~(unsigned)PROVIDER_ATTR_MTIME;
    stage->changed = true;
    stage->written = true;
    mutex_lock(&r->base.lock);
    stage->told = false;
    stage->attr.st_size = size;
    stage->attr.st_blocks = (blkcnt_t)((size + 511) / 512);
    stage->attr.st_mtim = now;
    stage->attr.st_ctim = now;
    mutex_unlock(&r->base.lock);
}

int remote_stage_write(struct remote_stage *stage, const void *data,
                       size_t size, uint64_t offset, bool append,
                       const struct limits *limits, struct err *err)
{
    off_t end = stage->attr.st_size;
    int rc = size ? check_room(stage, size, err) : 0;

    if (!size) {
        return 0;
    }
    offset = append ? (uint64_t)end : offset;
    if (rc == 0 && offset > (uint64_t)INT64_MAX - size) {
        rc = err_set(err, EFBIG, "behind the end of all files");
    }
    if (rc == 0) {
        rc = take_chunks(stage, offset, size, limits, err);
    }
    if (rc == 0) {
        rc = put_bytes(stage, data, size, offset, err);
        if (rc < 0) { /* Nothing of it shows behind the end, later. */
            (void)!ftruncate(stage->fd, end);
        }
    }
    if (rc < 0) {
        return rc;
    }
    cover_chunks(stage, offset, size);
    stage->appended = stage->appended && append;
    stage->grown = stage->sending;
    touch(stage, (off_t)(offset + size) > end ? (off_t)(offset + size) : end);
    account(stage);
    return 0;
}

int remote_stage_resize(struct remote_stage *stage, off_t size,
                        const struct limits *limits, struct err *err)
{
    int rc = 0;

    if (size < stage->base && size) { /* Zeros follow what stays of a chunk. */
        rc = take_chunks(stage, (uint64_t)size - 1, 1, limits, err);
    }
    if (rc == 0 && ftruncate(stage->fd, size) < 0) {
        rc = err_errno(err, "cannot stage");
    }
    if (rc < 0) {
        return rc;
    }
    stage->base = size < stage->base ? size : stage->base;
    stage->whole = stage->whole || !stage->base;
    stage->appended = false;
    touch(stage, size);
    account(stage);
    return 0;
}

void remote_stage_set(struct remote_stage *stage, unsigned mask,
                      const struct stat *want)
{
    struct remote *r = remote_tree(stage->node);

    stage->mask |= mask;
    stage->changed = true;
    mutex_lock(&r->base.lock);
    remote_apply(&stage->attr, mask, want);
    mutex_unlock(&r->base.lock);
}

int remote_stage_fill(struct remote_stage *stage, const struct limits *limits,
                      struct err *err)
{
    int rc = 0;

    for (off_t at = 0; rc == 0 && !stage->whole && at < stage->base;
         at += REMOTE_CHUNK) {
        uint64_t chunk = (uint64_t)at / REMOTE_CHUNK;

        if (!has_chunk(stage, chunk)) {
            rc = load_chunk(stage, chunk, limits, err);
        }
    }
    if (rc == 0 && !stage->whole &&
        ftruncate(stage->fd, stage->attr.st_size) < 0) {
        rc = err_errno(err, "cannot stage");
    }
    if (rc == 0) {
        stage->whole = true;
        account(stage);
    }
    return rc;
}

int remote_stage_path(const struct remote_stage *stage, struct remote_path *out,
                      struct err *err)
{
    if (!stage->path) {
        return remote_path(stage->node, NULL, out, err);
    }
    (void)snprintf(out->text, sizeof(out->text), "%s", stage->path);
    return 0;
}

void remote_stage_rebase(struct remote_stage *stage, const struct stat *now)
{
    struct remote *r = remote_tree(stage->node);

    free(stage->dirty);
    stage->dirty = NULL;
    stage->n_dirty = 0;
    stage->was = *now;
    stage->base = now->st_size;
    stage->tried = 0;
    stage->whole = false;
    mutex_lock(&r->base.lock);
    stage->attr.st_size = now->st_size;
    mutex_unlock(&r->base.lock);
}

void remote_stage_share(struct remote_stage *stage)
{
    struct remote *r = remote_tree(stage->node);

    mutex_lock(&r->base.lock);
    stage->sending = true;
    stage->busy = false;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

/* Who has entered meanwhile waits for no engine. */
void remote_stage_unshare(struct remote_stage *stage)
{
    struct remote *r = remote_tree(stage->node);

    mutex_lock(&r->base.lock);
    while (stage->busy) {
        (void)cond_wait(&r->turn, &r->base.lock, DEADLINE_NONE);
    }
    stage->busy = true;
    stage->sending = false;
    mutex_unlock(&r->base.lock);
}

void remote_stage_sent(struct remote_stage *stage, const struct stat *now)
{
    struct remote *r = remote_tree(stage->node);

    stage->was = *now;
    stage->any = false;
    stage->tried = 0;
    stage->mask = 0;
    stage->changed = stage->grown;
    stage->written = stage->grown;
    mutex_lock(&r->base.lock);
    if (!stage->grown) {
        stage->attr = *now;
    }
    stage->fresh = false;
    mutex_unlock(&r->base.lock);
    stage->grown = false;
    if (!stage->path) {
        remote_node_sent(stage->node, now);
    }
}
