/*
 * The door of the workspace: operations go in together, a pause closes it for
 * its moment. An operation that cannot go on at once becomes a `visit`, which
 * comes back when the door opens or the sandbox runs.
 */
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"

#include <errno.h>

enum {
    MOST_ENSURES = 3, /* For one operation; then it is told to come again. */
    SLICE_MS = 100,
};

struct visit {
    struct list link; /* session->files_waiting */
    struct session *session;
    enum session_need need;
    struct caller caller;
    session_files_fn *fn;
    void *arg;
    unsigned ensures;
};

enum verdict {
    GO_IN,    /* The tree is to be used. */
    GO_EMPTY, /* There is no sandbox: nothing is in it. */
    WAIT,     /* Until the door opens. */
    AWAIT,    /* Until it has started, which others have asked for. */
    ENSURE,   /* Make it run first. */
    REFUSE,
};

static void fail(const struct visit *visit, int rc, const struct err *err)
{
    visit->fn(visit->arg, rc, NULL, err);
}

/* What an operation on a sandbox that exists may do. */
static enum verdict judge_existing(struct session *session,
                                   const struct visit *visit, struct err *err)
    REQUIRES(session->lock)
{
    enum session_status status = session_status_locked(session);
    bool while_paused =
        session->provider->ops->flags & PROVIDER_FILES_WHEN_PAUSED;

    if (visit->need <= SESSION_LOOK) {
        return GO_IN;
    }
    if (status == SESSION_LOST && visit->need >= SESSION_WRITE &&
        session->record.head) {
        return ENSURE; /* It comes back from its last checkpoint. */
    }
    if (status == SESSION_LOST) {
        (void)err_set(err, ESTALE, "the engine no longer has the sandbox");
        return REFUSE;
    }
    if (while_paused ||
        (status != SESSION_PAUSED && status != SESSION_STARTING)) {
        return GO_IN;
    }
    if (status == SESSION_PAUSED && session->config.wake == CONFIG_WAKE_EXEC) {
        (void)err_set(err, EHOSTDOWN,
                      "the sandbox is paused, and files do not wake it "
                      "(\"wake\": \"exec\"); write 'running' to status");
        return REFUSE;
    }
    return ENSURE;
}

static enum verdict judge(struct session *session, const struct visit *visit,
                          struct err *err) REQUIRES(session->lock)
{
    bool exists =
        session->has_record && (session->record.status == SESSION_RUNNING ||
                                session->record.status == SESSION_PAUSED);

    /* What is there can be seen also without a config. */
    if (((session->gone || visit->need > SESSION_LOOK) &&
         session_usable_locked(session, err) < 0) ||
        session_need_provider_locked(session, err) < 0) {
        return REFUSE;
    }
    if (session->files_closed) {
        return WAIT;
    }
    /* What is not there yet must not look as if nothing were there. */
    if (visit->need > SESSION_PEEK && session_begins_locked(session)) {
        return AWAIT;
    }
    if (!exists) {
        return visit->need >= SESSION_WRITE ? ENSURE : GO_EMPTY;
    }
    return judge_existing(session, visit, err);
}

static int build_tree(struct session *session, const struct session_call *call,
                      struct workspace **out, struct err *err)
{
    struct registry *registry = session->registry;
    struct provider_root root;
    int rc;

    if (!call->provider->ops->root) {
        return ws_new_remote(call->provider, &call->sandbox, &registry->view,
                             out, err);
    }
    rc = provider_root(call->provider, &call->sandbox, &root, err);
    if (rc < 0) {
        return rc;
    }
    rc = ws_new_direct(&root, session->number, &registry->view, out, err);
    if (rc < 0) {
        (void)close(root.fd);
    }
    return rc;
}

/* Keeps a tree that was built, unless the sandbox is another one by now or
 * somebody else was quicker. Takes `built`. */
static int keep_tree(struct session *session, uint64_t generation,
                     struct workspace *built, struct workspace **out,
                     struct err *err)
{
    int rc = 0;

    mutex_lock(&session->lock);
    if (!session->has_record || session->generation != generation) {
        rc = err_set(err, ESTALE, "the sandbox was replaced");
    } else {
        if (!session->tree) {
            session->tree = TAKE_PTR(built);
            ws_contested(session->tree,
                         session->command_runs || session->background);
        }
        *out = ws_ref(session->tree);
    }
    mutex_unlock(&session->lock);
    ws_unref(built);
    return rc;
}

int session_files_make_tree(struct session *session, struct workspace **out,
                            struct err *err)
{
    struct workspace *built = NULL;
    struct session_call call;
    uint64_t generation;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    generation = call.state.generation;
    rc = build_tree(session, &call, &built, err);
    session_call_done(&call);
    return rc < 0 ? rc : keep_tree(session, generation, built, out, err);
}

int session_room(struct session *session, struct err *err)
{
    struct provider *provider;

    mutex_lock(&session->lock);
    provider = session->provider;
    mutex_unlock(&session->lock);
    return provider ? provider_room(provider, session->number, err) : 0;
}

/* Goes in: the door counts the visitor already. */
static void go_in(const struct visit *visit, struct workspace *tree)
{
    struct session *session = visit->session;
    struct err err = ERR_INIT;
    int rc = visit->need == SESSION_GROW ? session_room(session, &err) : 0;

    if (rc == 0 && !tree) {
        rc = session_files_make_tree(session, &tree, &err);
    }
    if (rc < 0) {
        ws_unref(tree);
        session_files_leave(session);
        fail(visit, rc, &err);
        return;
    }
    visit->fn(visit->arg, 0, tree, &err);
}

static void ensured(void *arg, int rc, const struct err *err);

/* A visit that outlives its call, with the session; NULL without memory. */
static struct visit *keep(const struct visit *visit)
{
    struct visit *kept = malloc(sizeof(*kept));

    if (kept) {
        *kept = *visit;
        list_init(&kept->link);
        (void)session_ref(kept->session);
    }
    return kept;
}

static void ensure_first(const struct visit *visit, bool await)
{
    struct visit *kept = keep(visit);
    struct err err = ERR_INIT;

    if (!kept) {
        fail(visit, err_no_memory(&err), &err);
        return;
    }
    if (await) {
        session_await_start(kept->session, &kept->caller, ensured, kept);
    } else {
        session_ensure(kept->session, false, &kept->caller, ensured, kept);
    }
}

/* Waits for the door, unless it has opened meanwhile: true then. */
static bool wait_for_door(const struct visit *visit)
{
    struct session *session = visit->session;
    struct visit *kept = keep(visit);
    struct err err = ERR_INIT;
    bool closed;

    if (!kept) {
        fail(visit, err_no_memory(&err), &err);
        return false;
    }
    mutex_lock(&session->lock);
    closed = session->files_closed;
    if (closed) {
        list_add(&session->files_waiting, &kept->link);
    }
    mutex_unlock(&session->lock);
    if (!closed) {
        session_unref(session);
        free(kept);
    }
    return !closed;
}

/* One try; true: try again. */
static bool try_visit(const struct visit *visit)
{
    struct session *session = visit->session;
    struct workspace *tree = NULL;
    struct err err = ERR_INIT;
    enum verdict verdict;
    bool first = false;

    mutex_lock(&session->lock);
    verdict = judge(session, visit, &err);
    if (verdict == GO_IN || verdict == GO_EMPTY) {
        session->files_inside++;
    }
    if (verdict == GO_IN && visit->need >= SESSION_WRITE) {
        first = checkpoint_wrote_locked(session);
    }
    if (verdict == GO_IN && session->tree) {
        tree = ws_ref(session->tree);
    }
    mutex_unlock(&session->lock);
    if (first) {
        checkpoint_watch(session);
    }
    switch (verdict) {
    case GO_IN:
        go_in(visit, tree);
        return false;
    case GO_EMPTY:
        visit->fn(visit->arg, 0, NULL, &err);
        return false;
    case WAIT:
        return wait_for_door(visit);
    case AWAIT:
    case ENSURE:
        ensure_first(visit, verdict == AWAIT);
        return false;
    case REFUSE:
        break;
    }
    fail(visit, -err.code, &err);
    return false;
}

static void come_back(void *arg)
{
    struct visit *visit = arg;
    bool again = true;

    while (again) {
        again = try_visit(visit);
    }
    session_unref(visit->session);
    free(visit);
}

/* Hands a kept visit to a thread that may block. */
static void hand_over(struct visit *visit)
{
    struct err err = ERR_INIT;
    int rc =
        session_run(visit->session, visit->session->files, come_back, visit);

    if (rc < 0) {
        fail(visit, err_set(&err, -rc, "no thread for a file operation"), &err);
        session_unref(visit->session);
        free(visit);
    }
}

static void ensured(void *arg, int rc, const struct err *err)
{
    struct visit *visit = arg;
    struct err why = ERR_INIT;

    if (rc == -EALREADY) { /* The start that it was to wait for is over. */
        rc = 0;
    }
    if (rc == 0 && ++visit->ensures > MOST_ENSURES) {
        rc = err_set(&why, EAGAIN, "the sandbox does not stay running");
        err = &why;
    }
    if (rc == 0) {
        hand_over(visit);
        return;
    }
    fail(visit, rc, err);
    session_unref(visit->session);
    free(visit);
}

void session_files_enter(struct session *session, enum session_need need,
                         const struct caller *caller, session_files_fn *fn,
                         void *arg)
{
    const struct visit visit = {
        .session = session,
        .need = need,
        .caller = *caller,
        .fn = fn,
        .arg = arg,
    };
    bool again = true;

    while (again) {
        again = try_visit(&visit);
    }
}

void session_files_leave(struct session *session)
{
    mutex_lock(&session->lock);
    session->files_inside--;
    if (!session->files_inside) {
        cond_broadcast(&session->files_left);
    }
    mutex_unlock(&session->lock);
}

int session_files_run(struct session *session, work_fn *fn, void *arg)
{
    return session_run(session, session->files, fn, arg);
}

static int wait_until_left(struct session *session, int64_t deadline_ms,
                           struct err *err) REQUIRES(session->lock)
{
    while (session->files_inside) {
        int64_t slice = clock_deadline(SLICE_MS);

        if (clock_ms() >= deadline_ms) {
            return err_set(err, ETIMEDOUT,
                           "file operations of the session do not end");
        }
        if (cancel_fired(&session->registry->cancel)) {
            return err_set(err, ECANCELED, "cancelled");
        }
        (void)cond_wait(&session->files_left, &session->lock, slice);
    }
    return 0;
}

int session_files_close(struct session *session, int64_t deadline_ms,
                        struct err *err)
{
    int rc;

    mutex_lock(&session->lock);
    session->files_closed = true;
    rc = wait_until_left(session, deadline_ms, err);
    mutex_unlock(&session->lock);
    if (rc < 0) {
        session_files_open(session);
    }
    return rc;
}

static struct visit *next_waiting(struct session *session)
{
    struct list *node;

    mutex_lock(&session->lock);
    session->files_closed = false;
    node = list_pop(&session->files_waiting);
    mutex_unlock(&session->lock);
    return node ? container_of(node, struct visit, link) : NULL;
}

void session_files_open(struct session *session)
{
    struct visit *visit = next_waiting(session);

    while (visit) {
        hand_over(visit);
        visit = next_waiting(session);
    }
}

struct workspace *session_files_tree(struct session *session, bool *commands)
{
    struct workspace *tree;

    mutex_lock(&session->lock);
    tree = session->tree ? ws_ref(session->tree) : NULL;
    if (commands) {
        *commands = session->command_runs || session->background;
    }
    mutex_unlock(&session->lock);
    return tree;
}

void session_files_changed(struct session *session)
{
    bool commands;
    struct workspace *tree = session_files_tree(session, &commands);

    if (tree) {
        ws_changed(tree);
        ws_contested(tree, commands);
        ws_unref(tree);
    }
}

void session_files_drop(struct session *session)
{
    struct workspace *tree;

    mutex_lock(&session->lock);
    tree = TAKE_PTR(session->tree);
    mutex_unlock(&session->lock);
    ws_unref(tree);
}
