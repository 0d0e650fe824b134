/*
 * Open control files: what waits is parked. See control.h.
 *
 * A read or flush that waits for a command goes on in the loop's thread alone:
 * there its watch is set, there it is woken and dropped. So no two threads
 * meet over one.
 */
#include "fs/control.h"

#include "core/cleanup.h"
#include "core/exec.h"
#include "core/session.h"
#include "fs/file.h"
#include "fs/park.h"
#include "fs/poll.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

enum {
    EXITING_MS = 1000
};

static struct file *file_of(const struct fuse_file_info *fi)
{
    return (struct file *)(uintptr_t)fi->fh;
}

static struct file_call call_of(fuse_req_t req, const struct fuse_file_info *fi)
{
    struct file_call call = {fs_caller(req), fi->lock_owner};

    return call;
}

/* ---- open ---- */

struct opening {
    struct park *park;
    struct file *file;
    struct fuse_file_info fi;
};

static const struct park_kind opening_kind = {.free = free};

static void drop_file(struct held *held)
{
    file_close(container_of(held, struct file, held));
}

static void reply_open(fuse_req_t req, struct file *file,
                       struct fuse_file_info *fi)
{
    const struct file_ops *ops = file->node.row->ops;
    struct held_set *held = fs_of(req)->held;

    fi->fh = (uint64_t)(uintptr_t)file;
    fi->direct_io = 1;
    fi->noflush = !(ops && ops->flush);
    file->held.drop = drop_file;
    held_add(held, &file->held);
    if (fuse_reply_open(req, fi) < 0) {
        held_remove(held, &file->held);
        file_close(file);
    }
}

static void opened(void *arg, int rc, const struct err *err)
{
    struct opening *opening = arg;
    fuse_req_t req = park_take(opening->park);

    if (req && rc == 0) {
        reply_open(req, opening->file, &opening->fi);
    } else {
        if (req) {
            reply_err(req, park_about(opening->park), rc, err);
        }
        file_close(opening->file);
    }
    park_unref(opening->park);
}

/* Parks the request while the file's own open makes ready what it needs. */
static void open_later(fuse_req_t req, const struct reply_about *what,
                       struct file *file, const struct fuse_file_info *fi)
{
    struct opening *opening = calloc(1, sizeof(*opening));
    struct caller caller = fs_caller(req);
    struct err err = ERR_INIT;
    struct park *park;

    if (!opening) {
        file_close(file);
        reply_err(req, what, err_no_memory(&err), &err);
        return;
    }
    opening->file = file;
    opening->fi = *fi;
    park = park_new(req, what, &opening_kind, opening);
    if (!park) {
        file_close(file);
        return;
    }
    opening->park = park;
    file->node.row->ops->open(file, &caller, opened, opening);
    park_wait(park);
}

void control_open(fuse_req_t req, struct inode *inode,
                  struct fuse_file_info *fi)
{
    struct reply_about what = control_about("open", inode, NULL, false);
    struct node node = control_node(inode);
    struct err err = ERR_INIT;
    struct file *file;
    int rc = file_open(&fs_of(req)->mount, &node, fi->flags, &file, &err);

    if (rc < 0) {
        reply_err(req, &what, rc, &err);
    } else if (node.row->ops && node.row->ops->open) {
        open_later(req, &what, file, fi);
    } else {
        reply_open(req, file, fi);
    }
}

void control_release(fuse_req_t req, struct inode *inode,
                     struct fuse_file_info *fi)
{
    (void)inode;
    pollers_forget(fs_of(req)->pollers, file_of(fi));
    held_remove(fs_of(req)->held, &file_of(fi)->held);
    file_close(file_of(fi));
    reply_ok(req);
}

/* ---- Waiting for a command, in the loop's thread ---- */

struct waiting {
    struct exec_watch watch;
    struct loop *loop;
    struct park *park;
    struct list pending; /* A flush's: of struct file_pending. */
    struct exec *on;     /* The watched one: a reference; NULL: none. */
    bool over;           /* Answered by another. */
    loop_fn *step;
    /* A read's: */
    struct file *file; /* A reference. */
    struct file_call call;
    uint64_t offset;
    size_t size;
    char *data;
    ssize_t n; /* What file_read() said, */
    struct err err;
};

static void free_waiting(void *arg)
{
    struct waiting *waiting = arg;

    file_pending_done(&waiting->pending);
    file_close(waiting->file);
    free(waiting->data);
    free(waiting);
}

static void stop_watch(struct waiting *waiting)
{
    exec_unref(waiting->on);
    waiting->on = NULL;
}

static void woken(struct exec_watch *watch)
{
    struct waiting *waiting = container_of(watch, struct waiting, watch);

    loop_post(waiting->loop, waiting->step, waiting);
}

static void drop_read(void *arg, int code)
{
    struct waiting *waiting = arg;

    (void)code;
    waiting->over = true;
    if (waiting->on && exec_unwatch(waiting->on, &waiting->watch)) {
        stop_watch(waiting);
        park_unref(waiting->park);
    }
}

static void drop_flush(void *arg, int code)
{
    struct waiting *waiting = arg;

    list_each(at, &waiting->pending)
    {
        struct exec *exec = container_of(at, struct file_pending, link)->exec;

        if (code == EINTR && !exec_answered(exec)) {
            exec_cancel(exec);
        }
    }
    drop_read(arg, code);
}

static const struct park_kind read_kind = {
    .dropped = drop_read,
    .free = free_waiting,
};

static const struct park_kind flush_kind = {
    .dropped = drop_flush,
    .free = free_waiting,
};

/* The close of a task that exits can be neither interrupted nor reported. */
static const struct park_kind exit_kind = {
    .most_ms = EXITING_MS,
    .late = 0,
    .dropped = drop_flush,
    .free = free_waiting,
};

static struct waiting *new_waiting(struct fs *fs, loop_fn *step)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));

    if (waiting) {
        waiting->loop = fs->loop;
        waiting->step = step;
        waiting->watch.wake = woken;
        list_init(&waiting->pending);
    }
    return waiting;
}

/* Parks a request; the first step follows. Takes what waiting holds. */
static void wait_for(fuse_req_t req, const struct reply_about *what,
                     const struct park_kind *kind, struct waiting *waiting)
{
    struct loop *loop = waiting->loop;
    struct park *park = park_new(req, what, kind, waiting);

    if (park) {
        waiting->park = park;
        loop_post(loop, waiting->step, waiting);
        park_wait(park);
    }
}

/* ---- read ---- */

static void reply_read(fuse_req_t req, const struct reply_about *what,
                       const char *data, ssize_t n, const struct err *err)
{
    if (n < 0) {
        reply_err(req, what, (int)n, err);
    } else {
        (void)fuse_reply_buf(req, data, (size_t)n);
    }
}

static void read_step(void *arg);

/* A read has said something. In the loop's thread. */
static void read_said(void *arg)
{
    struct waiting *waiting = arg;
    const struct file_ops *ops = waiting->file->node.row->ops;
    fuse_req_t req;

    if (!waiting->over && waiting->n == -EAGAIN) {
        waiting->on = ops->watch(waiting->file, &waiting->watch);
        if (!waiting->on) {
            loop_post(waiting->loop, read_step, waiting);
        }
        return;
    }
    req = waiting->over ? NULL : park_take(waiting->park);
    if (req) {
        reply_read(req, park_about(waiting->park), waiting->data, waiting->n,
                   &waiting->err);
    }
    park_unref(waiting->park);
}

static void read_now(struct waiting *waiting)
{
    if (!waiting->data) {
        waiting->data = malloc(waiting->size);
    }
    waiting->n = waiting->data
                     ? file_read(waiting->file, &waiting->call, waiting->offset,
                                 waiting->data, waiting->size, &waiting->err)
                     : err_no_memory(&waiting->err);
}

/* In a thread of the session. */
static void read_aside(void *arg)
{
    struct waiting *waiting = arg;

    read_now(waiting);
    loop_post(waiting->loop, read_said, waiting);
}

static void read_step(void *arg)
{
    struct waiting *waiting = arg;
    const struct node *node = &waiting->file->node;

    stop_watch(waiting);
    if (!waiting->over && node->row->ops->slow &&
        session_files_run(node->session, read_aside, waiting) == 0) {
        return;
    }
    if (!waiting->over) {
        read_now(waiting);
    }
    read_said(waiting);
}

static void read_later(fuse_req_t req, const struct reply_about *what,
                       struct file *file, const struct file_call *call,
                       size_t size, off_t off)
{
    struct waiting *waiting = new_waiting(fs_of(req), read_step);
    struct err err = ERR_INIT;

    if (!waiting) {
        reply_err(req, what, err_no_memory(&err), &err);
        return;
    }
    waiting->file = file_ref(file);
    waiting->call = *call;
    waiting->size = size;
    waiting->offset = (uint64_t)off;
    wait_for(req, what, &read_kind, waiting);
}

void control_read(fuse_req_t req, struct inode *inode, size_t size, off_t off,
                  struct fuse_file_info *fi)
{
    struct reply_about what = control_about("read", inode, NULL, false);
    struct file_call call = call_of(req, fi);
    struct err err = ERR_INIT;
    AUTO_FREE char *data = malloc(size);
    ssize_t n =
        data ? file_read(file_of(fi), &call, (uint64_t)off, data, size, &err)
             : err_no_memory(&err);

    if (n == -EAGAIN) {
        read_later(req, &what, file_of(fi), &call, size, off);
    } else {
        reply_read(req, &what, data, n, &err);
    }
}

/* ---- write ---- */

struct storing {
    struct park *park;
    size_t size;
};

static const struct park_kind storing_kind = {
    .most_ms = PARK_LOCKED_MS,
    .late = EINPROGRESS,
    .free = free,
};

static void stored(void *arg, int rc, const struct err *err)
{
    struct storing *storing = arg;
    fuse_req_t req = park_take(storing->park);

    if (req && rc < 0) {
        reply_err(req, park_about(storing->park), rc, err);
    } else if (req) {
        (void)fuse_reply_write(req, storing->size);
    }
    park_unref(storing->park);
}

static void store(fuse_req_t req, const struct reply_about *what,
                  struct file *file, const struct file_call *call,
                  const char *data, size_t size)
{
    struct storing *storing = calloc(1, sizeof(*storing));
    struct err err = ERR_INIT;
    struct park *park;

    if (!storing) {
        reply_err(req, what, err_no_memory(&err), &err);
        return;
    }
    storing->size = size;
    park = park_new(req, what, &storing_kind, storing);
    if (park) {
        storing->park = park;
        file_store(file, call, data, size, stored, storing);
        park_wait(park);
    }
}

void control_write(fuse_req_t req, struct inode *inode, const char *data,
                   size_t size, off_t off, struct fuse_file_info *fi)
{
    struct reply_about what = control_about("write", inode, NULL, true);
    struct file *file = file_of(fi);
    struct file_call call = call_of(req, fi);
    struct err err = ERR_INIT;
    int rc;

    (void)off;
    if (file->node.session) {
        session_touch(file->node.session);
    }
    if (file->node.row->store) {
        store(req, &what, file, &call, data, size);
        return;
    }
    rc = file->node.row->ops->write(file, &call, data, size, &err);
    if (rc < 0) {
        reply_err(req, &what, rc, &err);
        return;
    }
    (void)fuse_reply_write(req, size);
}

/* ---- flush ---- */

/* The first command that was not run, or not recorded; NULL: none. */
static struct exec *find_failed(const struct list *pending,
                                struct exec_info *info)
{
    list_each(at, pending)
    {
        struct exec *exec = container_of(at, struct file_pending, link)->exec;

        exec_info(exec, info);
        if (info->status == EXEC_FAILED) {
            return exec;
        }
    }
    return NULL;
}

/* All have ended: only a failure of ours is an error of close. */
static void reply_flush(struct waiting *waiting)
{
    fuse_req_t req = park_take(waiting->park);
    struct reply_about what = *park_about(waiting->park);
    struct exec_info info;

    if (req && find_failed(&waiting->pending, &info)) {
        what.exec_n = info.n;
        what.recorded = true;
        reply_err(req, &what, -info.err.code, &info.err);
    } else if (req) {
        reply_ok(req);
    }
}

static void flush_step(void *arg)
{
    struct waiting *waiting = arg;

    stop_watch(waiting);
    list_each(at, &waiting->pending)
    {
        struct exec *exec = container_of(at, struct file_pending, link)->exec;

        if (!waiting->over && exec_watch_answer(exec, &waiting->watch)) {
            waiting->on = exec_ref(exec);
            return;
        }
    }
    reply_flush(waiting);
    park_unref(waiting->park);
}

static void flush_later(fuse_req_t req, const struct reply_about *what,
                        struct file_wait *wait)
{
    struct waiting *waiting = new_waiting(fs_of(req), flush_step);
    struct err err = ERR_INIT;

    if (!waiting) {
        file_pending_done(&wait->pending);
        reply_err(req, what, err_no_memory(&err), &err);
        return;
    }
    file_pending_move(&wait->pending, &waiting->pending);
    wait_for(req, what, wait->brief ? &exit_kind : &flush_kind, waiting);
}

void control_flush(fuse_req_t req, struct inode *inode,
                   struct fuse_file_info *fi)
{
    struct reply_about what = control_about("flush", inode, NULL, true);
    struct file *file = file_of(fi);
    const struct file_ops *ops = file->node.row->ops;
    struct file_call call = call_of(req, fi);
    struct file_wait wait = {.brief = false};
    struct err err = ERR_INIT;
    int rc = 0;

    list_init(&wait.pending);
    if (ops && ops->flush) {
        rc = ops->flush(file, &call, &wait, &err);
    }
    if (rc < 0) {
        reply_err(req, &what, rc, &err);
    } else if (!list_empty(&wait.pending)) {
        flush_later(req, &what, &wait);
    } else {
        reply_ok(req);
    }
}

/* ---- poll ---- */

void control_poll(fuse_req_t req, struct inode *inode,
                  struct fuse_file_info *fi, struct fuse_pollhandle *handle)
{
    struct file *file = file_of(fi);
    unsigned events = POLLOUT | POLLWRNORM;

    (void)inode;
    /* Before the look: a change in between is told. */
    if (handle) {
        pollers_add(fs_of(req)->pollers, file, handle);
    }
    if (file_readable(file)) {
        events |= POLLIN | POLLRDNORM;
        events |= file->node.row->flags & NODE_NEWS ? POLLPRI : 0U;
    }
    (void)fuse_reply_poll(req, events);
}
