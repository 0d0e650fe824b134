/* Open control files. See file.h. */
#include "fs/file.h"

#include "core/cleanup.h"
#include "core/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

bool file_writes(const struct file *file)
{
    return (file->flags & O_ACCMODE) != O_RDONLY;
}

/* As sysfs: root passes the permission check, not this one. */
static int check_access(const struct node_row *row, int flags, struct err *err)
{
    bool writable = row->store || (row->ops && row->ops->write);

    if ((flags & O_ACCMODE) != O_RDONLY && !writable) {
        return err_set(err, EACCES, "'%s' is read-only", row->name);
    }
    return 0;
}

static int init_file(struct file *file, struct err *err)
{
    const struct file_ops *ops = file->node.row->ops;
    uint64_t n = node_command(&file->node);
    int rc = 0;

    if (n) {
        rc = session_exec_find(file->node.session, n, &file->exec, err);
    }
    if (rc == 0 && ops && ops->init) {
        rc = ops->init(file, err);
    }
    return rc;
}

int file_open(const struct node_mount *mount, const struct node *node,
              int flags, struct file **out, struct err *err)
{
    struct file *file;
    int rc = check_access(node->row, flags, err);

    if (rc < 0) {
        return rc;
    }
    file = calloc(1, sizeof(*file));
    if (!file) {
        return err_no_memory(err);
    }
    atomic_init(&file->refs, 1);
    file->mount = mount;
    node_copy(node, &file->node);
    file->flags = flags;
    mutex_init(&file->lock);
    buf_init(&file->text, NODE_TEXT_MAX);
    rc = init_file(file, err);
    if (rc < 0) {
        file_close(file);
        return rc;
    }
    *out = file;
    return 0;
}

struct file *file_ref(struct file *file)
{
    (void)atomic_fetch_add(&file->refs, 1);
    return file;
}

void file_close(struct file *file)
{
    if (!file || atomic_fetch_sub(&file->refs, 1) > 1) {
        return;
    }
    if (file->own) {
        file->node.row->ops->done(file);
    }
    exec_unref(file->exec);
    node_drop(&file->node);
    buf_done(&file->text);
    mutex_done(&file->lock);
    free(file);
}

int file_pending_add(struct list *list, uint64_t owner, struct exec *exec,
                     struct err *err)
{
    struct file_pending *pending = calloc(1, sizeof(*pending));

    if (!pending) {
        return err_no_memory(err);
    }
    pending->owner = owner;
    pending->exec = exec_ref(exec);
    list_add(list, &pending->link);
    return 0;
}

void file_pending_move(struct list *from, struct list *to)
{
    struct list *node = list_pop(from);

    while (node) {
        list_add(to, node);
        node = list_pop(from);
    }
}

void file_pending_done(struct list *list)
{
    list_each_safe(at, list)
    {
        struct file_pending *pending =
            container_of(at, struct file_pending, link);

        list_remove(at);
        exec_unref(pending->exec);
        free(pending);
    }
}

/* The present text of a file with show. */
static int show(const struct file *file, const struct caller *caller,
                struct buf *out, struct err *err)
{
    struct node_ctx ctx;
    int rc = node_ctx_init(file->mount, caller, &file->node, &ctx, err);

    if (rc < 0) {
        return rc;
    }
    rc = file->node.row->show(&ctx, out, err);
    node_ctx_done(&ctx);
    return rc;
}

static size_t slice_locked(const struct file *file, uint64_t offset, void *out,
                           size_t size) REQUIRES(file->lock)
{
    size_t left;

    if (offset >= file->text.size) {
        return 0;
    }
    left = file->text.size - (size_t)offset;
    if (size > left) {
        size = left;
    }
    memcpy(out, file->text.data + offset, size);
    return size;
}

static ssize_t read_text(struct file *file, const struct file_call *call,
                         uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    bool fresh;
    size_t n;

    mutex_lock(&file->lock);
    fresh = offset == 0 || !file->shown;
    mutex_unlock(&file->lock);
    if (fresh) {
        int rc = show(file, &call->caller, &text, err);

        if (rc < 0) {
            buf_done(&text);
            return rc;
        }
    }
    mutex_lock(&file->lock);
    if (fresh) {
        buf_done(&file->text);
        file->text = text;
        file->shown = true;
    }
    n = slice_locked(file, offset, out, size);
    mutex_unlock(&file->lock);
    return (ssize_t)n;
}

ssize_t file_read(struct file *file, const struct file_call *call,
                  uint64_t offset, void *out, size_t size, struct err *err)
{
    const struct node_row *row = file->node.row;

    if (row->ops && row->ops->read) {
        return row->ops->read(file, call, offset, out, size, err);
    }
    return read_text(file, call, offset, out, size, err);
}

/* Copies without blanks and newlines at the end. */
static int copy_text(const char *data, size_t size, char **out, struct err *err)
{
    if (size > NODE_STORE_MAX) {
        return err_set(err, EINVAL, "over %d bytes", NODE_STORE_MAX);
    }
    if (memchr(data, '\0', size)) {
        return err_set(err, EINVAL, "a NUL byte in it");
    }
    while (size && strchr(" \t\r\n", data[size - 1])) {
        size--;
    }
    *out = strndup(data, size);
    return *out ? 0 : err_no_memory(err);
}

void file_store(struct file *file, const struct file_call *call,
                const void *data, size_t size, done_fn *done, void *arg)
{
    AUTO_FREE char *text = NULL;
    struct err err = ERR_INIT;
    struct node_ctx ctx;
    int rc = copy_text(data, size, &text, &err);

    if (rc == 0) {
        rc = node_ctx_init(file->mount, &call->caller, &file->node, &ctx, &err);
    }
    if (rc < 0) {
        done(arg, rc, &err);
        return;
    }
    file->node.row->store(&ctx, text, done, arg);
    node_ctx_done(&ctx);
}

static bool text_changed(struct file *file)
{
    static const struct caller nobody = {0, 0};
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    bool changed = true;

    if (show(file, &nobody, &text, &err) == 0) {
        mutex_lock(&file->lock);
        changed = !file->shown || text.size != file->text.size ||
                  memcmp(buf_str(&text), buf_str(&file->text), text.size) != 0;
        mutex_unlock(&file->lock);
    }
    buf_done(&text);
    return changed;
}

bool file_readable(struct file *file)
{
    const struct node_row *row = file->node.row;

    if (row->ops && row->ops->readable) {
        return row->ops->readable(file);
    }
    return !(row->flags & NODE_NEWS) || text_changed(file);
}
