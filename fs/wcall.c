/* Requests below workspace/: where they run. See wcall.h. */
#include "fs/wcall.h"

#include "core/checkpoint.h"
#include "core/clock.h"
#include "fs/files.h"
#include "fs/workspace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Trees that do not block ignore their limits. */
static struct cancel never = CANCEL_NEVER;

static struct reply_about about_of(const struct wcall *call)
{
    struct reply_about about = {
        .op = call->kind->name,
        .session = call->session,
        .name = call->name,
        .probe = call->kind->probe,
    };

    return about;
}

struct wcall *wcall_new(fuse_req_t req, const struct wcall_kind *kind,
                        struct inode *inode)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    struct wcall *call = wcall_memory();

    if (!call) {
        const struct reply_about about = {.op = kind->name};
        struct err err = ERR_INIT;

        reply_err(req, &about, err_no_memory(&err), &err);
        return NULL;
    }
    call->kind = kind;
    call->fs = fs_of(req);
    call->req = req;
    call->inode = inode;
    call->session = inode_key(inode)->session;
    call->caller = fs_caller(req);
    call->ctx = (struct ws_ctx){
        .uid = ctx->uid,
        .gid = ctx->gid,
        .limits = {.deadline_ms = DEADLINE_NONE, .cancel = &never}};
    call->cancel.fd = -1;
    atomic_init(&call->refs, 1);
    return call;
}

static void copy_string(struct wcall *call, const char *from, char *room,
                        char **out)
{
    size_t len = strlen(from);

    *out = len <= NAME_MAX ? room : malloc(len + 1);
    if (*out) {
        memcpy(*out, from, len + 1);
    } else {
        call->rc = -ENOMEM;
    }
}

void wcall_name(struct wcall *call, const char *name)
{
    copy_string(call, name, call->name_room, &call->name);
}

void wcall_text(struct wcall *call, const char *text)
{
    copy_string(call, text, call->text_room, &call->text);
}

void wcall_open(struct wcall *call, const struct fuse_file_info *fi)
{
    if (fi) {
        call->fi = *fi;
        call->open = wopen_ref(wopen_of(fi));
    }
}

struct inode_key wcall_key(const struct wcall *call, struct ws_node *node)
{
    return (struct inode_key){.part = inode_key(call->inode)->part,
                              .session = call->session,
                              .exec_n = inode_key(call->inode)->exec_n,
                              .ws = node};
}

struct inode *wcall_look_up(const struct wcall *call, struct ws_node *node)
{
    const struct inode_key key = wcall_key(call, node);

    return inode_look_up(call->fs->inodes, &key);
}

void wcall_show_top(const struct wcall *call, struct stat *attr)
{
    const struct inode_key *key = inode_key(call->inode);
    const struct node node = {
        .row = key->row, .session = key->session, .exec_n = key->exec_n};

    if (!key->ws) {
        attr->st_ino = node_ino(&node);
    }
}

void wcall_fail(const struct wcall *call, fuse_req_t req, int rc,
                const struct err *err)
{
    const struct reply_about about = about_of(call);

    reply_err(req, &about, rc, err);
}

void wcall_no_memory(struct wcall *call, fuse_req_t req)
{
    struct err err = ERR_INIT;

    wcall_fail(call, req, err_no_memory(&err), &err);
}

static void call_unref(struct wcall *call)
{
    struct inode_table *inodes = call->fs->inodes;

    if (atomic_fetch_sub(&call->refs, 1) > 1) {
        return;
    }
    if (call->waiting) {
        cancel_done(&call->cancel);
        session_unref(call->session);
        inode_unref(inodes, call->inode);
        inode_unref(inodes, call->other);
        free((void *)(uintptr_t)call->data);
    }
    wopen_unref(call->open);
    wopen_unref(call->open_out);
    if (call->name != call->name_room) {
        free(call->name);
    }
    if (call->text != call->text_room) {
        free(call->text);
    }
    wcall_forget(call);
}

/* Gives back what the call holds for its run, and what nobody took. */
static void dispose(struct wcall *call)
{
    for (size_t i = 0; i < call->n_listed; i++) {
        inode_forget(call->fs->inodes, call->listed[i], 1);
    }
    free(call->listed);
    free(call->out);
    wopen_unref(call->opened);
    ws_node_unref(call->made);
    ws_node_unref(call->node);
    ws_node_unref(call->other_node);
    ws_unref(call->ws);
}

/* The node of an inode in the tree that there is now. */
static int find_node(struct wcall *call, struct inode *inode,
                     struct ws_node **out, struct err *err)
{
    struct ws_node *node = inode_key(inode)->ws;

    if (!node) {
        *out = ws_root(call->ws);
        return 0;
    }
    if (ws_node_tree(node) != call->ws) {
        return err_set(err, ESTALE, "the sandbox was replaced");
    }
    *out = ws_node_ref(node);
    return 0;
}

static int run_empty(struct wcall *call, struct err *err)
{
    if (inode_key(call->inode)->ws) {
        return err_set(err, ESTALE, "the sandbox is gone");
    }
    return call->kind->empty ? call->kind->empty(call, err)
                             : err_set(err, ENOENT, "there is no sandbox");
}

/* Has the kernel ask for the attributes of a node. */
static void tell_moved(void *arg, struct ws_node *node)
{
    const struct wcall *call = arg;
    struct ws_node *top = ws_root(call->ws);
    struct inode_key key = {.part = &workspace_part,
                            .session = call->session,
                            .exec_n = inode_key(call->inode)->exec_n,
                            .ws = node};
    fuse_ino_t number;

    if (node == top) {
        key.row = &files_session_rows[FILES_WORKSPACE_ROW];
        key.ws = NULL;
    }
    ws_node_unref(top);
    number = inode_peek(call->fs->inodes, &key);
    if (number) {
        kernel_moved(call->fs, number);
    }
}

/*
 * What a change moves besides what it is about; and what one has moved that
 * failed midway, as an overlay may, of which the kernel expects nothing.
 */
static void tell_change(struct wcall *call, int rc)
{
    struct ws_node *nodes[] = {call->node, call->other_node};

    for (size_t i = 0; i < ARRAY_SIZE(nodes) && nodes[i]; i++) {
        ws_lift(nodes[i], tell_moved, call);
        if (rc < 0 && rc != -ENOENT && rc != -EEXIST) {
            tell_moved(call, nodes[i]);
        }
    }
}

static int run(struct wcall *call, struct err *err)
{
    int rc;

    call->changes = kernel_changes(call->fs);
    if (!call->ws) {
        return run_empty(call, err);
    }
    rc = find_node(call, call->inode, &call->node, err);
    if (rc == 0 && call->open && call->open->tree &&
        call->open->tree != call->ws) {
        rc = err_set(err, ESTALE, "the sandbox was replaced");
    }
    if (rc == 0 && call->other) {
        rc = find_node(call, call->other, &call->other_node, err);
    }
    if (rc < 0) {
        return rc;
    }
    rc = call->kind->run(call, err);
    if (call->kind->need >= SESSION_WRITE) {
        tell_change(call, rc);
    }
    if (call->kind->data && !call->aside) {
        session_touch(call->session);
    }
    return rc;
}

/* Whether a name that is not there may be kept as such. */
static bool is_answer(const struct wcall *call, int rc)
{
    return rc == -ENOENT && call->kind->looks && call->ws &&
           !ws_blocks(call->ws) &&
           kernel_uses(call->fs->kernel, KERNEL_NEGATIVE);
}

static void answer(struct wcall *call, fuse_req_t req, int rc,
                   const struct err *err)
{
    if (is_answer(call, rc)) {
        reply_no_entry(req, call->session, call->ws);
    } else if (rc < 0) {
        wcall_fail(call, req, rc, err);
    } else if (call->kind->reply) {
        call->kind->reply(call, req);
    } else {
        reply_ok(req);
    }
}

/* What the answer told may be older than a change. */
static void check_told(const struct wcall *call)
{
    if (call->told) {
        kernel_told(call->fs, call->told, call->changes);
    }
    for (size_t i = 0; i < call->n_told; i++) {
        kernel_told(call->fs, inode_number(call->listed[i]), call->changes);
    }
}

/* Runs the call, answers it and ends it. */
static void execute(void *arg)
{
    struct wcall *call = arg;
    bool entered = call->rc == 0;
    int rc = entered && !call->refused ? run(call, &call->err) : call->rc;
    fuse_req_t req = call->waiting ? NULL : call->req;

    if (call->park) {
        req = park_take(call->park);
    }
    if (req) {
        answer(call, req, rc, &call->err);
        check_told(call);
    }
    dispose(call);
    if (entered && !call->aside) {
        session_files_leave(call->session);
    }
    park_unref(call->park);
    call_unref(call);
}

/* The callback's way on, when the request is parked: where may it block? */
static void dispatch(struct wcall *call)
{
    int rc;

    if (call->rc < 0 || !call->ws || !ws_blocks(call->ws)) {
        execute(call);
        return;
    }
    rc = session_files_run(call->session, execute, call);
    if (rc < 0) {
        if (!call->aside) {
            session_files_leave(call->session);
        }
        call->rc = err_set(&call->err, -rc, "no thread for a file operation");
        execute(call);
    }
}

static void entered(void *arg, int rc, struct workspace *ws,
                    const struct err *err)
{
    struct wcall *call = arg;
    bool *done = NULL;

    if (pthread_equal(pthread_self(), call->thread)) {
        done = call->done; /* NULL once wcall_start() has gone on. */
    }
    call->rc = rc;
    call->ws = ws;
    if (rc < 0) {
        call->err = *err;
    }
    if (done && (rc < 0 || !ws || !ws_blocks(ws))) {
        execute(call);
        *done = true;
    } else if (atomic_fetch_add(&call->met, 1) == 1) {
        execute(call); /* Late, and so in a thread that may block. */
    }
}

static void dropped(void *arg, int code)
{
    struct wcall *call = arg;

    if (code != EINPROGRESS) {
        cancel_fire(&call->cancel);
    }
}

static void parked_free(void *arg)
{
    call_unref(arg);
}

static const struct park_kind *park_kind(const struct wcall *call)
{
    static const struct park_kind waits = {.dropped = dropped,
                                           .free = parked_free};
    static const struct park_kind goes_on = {.most_ms = PARK_LOCKED_MS,
                                             .late = EINPROGRESS,
                                             .dropped = dropped,
                                             .free = parked_free};
    static const struct park_kind stops = {.most_ms = PARK_LOCKED_MS,
                                           .late = ETIMEDOUT,
                                           .dropped = dropped,
                                           .free = parked_free};

    if (!call->kind->late) {
        return &waits;
    }
    return call->kind->late == EINPROGRESS ? &goes_on : &stops;
}

/* Makes the call independent of its request. */
static int detach(struct wcall *call, struct err *err)
{
    void *copy;

    call->waiting = true;
    (void)session_ref(call->session);
    (void)inode_ref(call->fs->inodes, call->inode);
    if (call->other) {
        (void)inode_ref(call->fs->inodes, call->other);
    }
    copy = call->data ? malloc(call->size + 1) : NULL;
    if (call->data && !copy) {
        call->data = NULL;
        return err_no_memory(err);
    }
    if (copy) {
        memcpy(copy, call->data, call->size);
    }
    call->data = copy;
    call->ctx.limits.deadline_ms = clock_deadline(WCALL_MOST_MS);
    call->ctx.limits.cancel = &call->cancel;
    return cancel_init(&call->cancel, err);
}

/* Parks a call whose callback has not run it. Both go on when they meet. */
static void wait_for_it(struct wcall *call)
{
    const struct reply_about about = about_of(call);
    struct err err = ERR_INIT;
    struct park *park;
    int rc;

    call->done = NULL;
    rc = detach(call, &err);
    atomic_store(&call->refs, 2); /* The park's, and the callback's. */
    park = park_new(call->req, &about, park_kind(call), call);
    call->park = park;
    call->refused = !park || rc < 0;
    if (park && rc < 0) {
        park_end(park_ref(park), rc, &err);
    }
    if (atomic_fetch_add(&call->met, 1) == 1) {
        dispatch(call);
    }
    if (park) {
        park_wait(park);
    }
}

/* ---- Checkpoints: they are nobody's to wait for, once open ---- */

static bool of_checkpoint(const struct inode *inode)
{
    const struct inode_key *key = inode_key(inode);

    return key->part == &workspace_part && key->exec_n;
}

static struct workspace *find_tree(const struct wcall *call)
{
    const struct inode_key *key = inode_key(call->inode);

    return key->ws ? ws_ref(ws_node_tree(key->ws))
                   : checkpoint_opened(call->session, key->exec_n);
}

/* In a thread that may block. */
static void open_tree(void *arg)
{
    struct wcall *call = arg;
    struct workspace *tree = NULL;
    struct err err = ERR_INIT;
    int rc = checkpoint_open(call->session, call->key, &tree, &err);

    entered(call, rc, tree, &err);
}

static void enter_checkpoint(struct wcall *call)
{
    struct workspace *tree = find_tree(call);
    struct err err = ERR_INIT;
    int rc = 0;

    call->aside = true;
    call->key = inode_key(call->inode)->exec_n;
    if (!tree) {
        rc = session_files_run(call->session, open_tree, call);
    }
    if (tree || rc < 0) {
        entered(call,
                rc < 0 ? err_set(&err, -rc, "no thread for a file operation")
                       : 0,
                tree, &err);
    }
}

static enum session_need need_of(const struct wcall *call)
{
    return call->kind->stats && !inode_key(call->inode)->ws ? SESSION_PEEK
                                                            : call->kind->need;
}

void wcall_start(struct wcall *call)
{
    struct session *session;
    bool done = false;

    if (call->rc < 0) { /* A string could not be copied. */
        wcall_no_memory(call, call->req);
        call_unref(call);
        return;
    }
    /* Once the request is answered the kernel may forget all that it names,
     * while the session is yet to be left. */
    session = session_ref(call->session);
    call->thread = pthread_self();
    call->done = &done;
    if (of_checkpoint(call->inode)) {
        enter_checkpoint(call);
    } else {
        session_files_enter(session, need_of(call), &call->caller, entered,
                            call);
    }
    if (!done) {
        wait_for_it(call);
    }
    session_unref(session);
}
