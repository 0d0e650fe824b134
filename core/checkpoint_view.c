/*
 * The trees of checkpoints that are looked at: opened when they are first
 * used, and closed when nobody uses them and others are. See checkpoint.h.
 */
#include "core/checkpoint_priv.h"
#include "core/cleanup.h"
#include "core/registry_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    MOST_UNUSED = 4, /* Open trees of a session that nobody uses. */
    KEY_SHIFT = 32,
};

struct view {
    struct list link; /* session->views, the newest first. */
    uint64_t key;
    struct workspace *tree;
};

bool checkpoint_shown(struct session *session)
{
    const struct provider_ops *ops = session_ops(session);

    return ops && ops->snapshots && ops->snapshots->open;
}

static struct workspace *find_locked(struct session *session, uint64_t key)
    REQUIRES(session->lock)
{
    list_each(node, &session->views)
    {
        const struct view *view = container_of(node, struct view, link);

        if (view->key == key) {
            return ws_ref(view->tree);
        }
    }
    return NULL;
}

struct workspace *checkpoint_opened(struct session *session, uint64_t key)
{
    struct workspace *tree;

    mutex_lock(&session->lock);
    tree = find_locked(session, key);
    mutex_unlock(&session->lock);
    return tree;
}

/* One that is to go, out of the list: of a key, or beyond what is kept. */
static struct view *pop_locked(struct session *session, uint64_t key, bool all)
    REQUIRES(session->lock)
{
    unsigned unused = 0;

    list_each(node, &session->views)
    {
        struct view *view = container_of(node, struct view, link);

        unused += !ws_used(view->tree);
        if (all || view->key == key || (!key && unused > MOST_UNUSED)) {
            list_remove(&view->link);
            return view;
        }
    }
    return NULL;
}

static void close_views(struct session *session, uint64_t key, bool all)
{
    struct view *view;

    do {
        mutex_lock(&session->lock);
        view = pop_locked(session, key, all);
        mutex_unlock(&session->lock);
        if (view) {
            ws_unref(view->tree);
            free(view);
        }
    } while (view);
}

void checkpoint_view_drop(struct session *session, uint64_t key)
{
    close_views(session, key, key == 0);
}

static int call_open(struct session *session, uint64_t key,
                     struct workspace **out, struct err *err)
{
    struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct ws_view view = session->registry->view;
    struct session_call call;
    struct provider_root root;
    int rc = session_call_init(session, &call, err);

    if (rc < 0) {
        return rc;
    }
    rc = call.provider ? provider_snapshot_open(call.provider, &call.sandbox,
                                                key, &limits, &root, err)
                       : err_set(err, ENOTCONN, "the provider is not open");
    if (rc == 0) {
        view.fixed = true;
        /* Its inodes are others than the workspace's. */
        rc = ws_new_direct(&root, session->number | key << KEY_SHIFT, &view,
                           out, err);
        if (rc < 0) {
            (void)close(root.fd);
        }
    }
    session_call_done(&call);
    return rc;
}

/* Keeps a tree, unless somebody else was quicker. Takes `built`. */
static int keep(struct session *session, uint64_t key, struct workspace *built,
                struct workspace **out, struct err *err)
{
    struct view *view = calloc(1, sizeof(*view));
    struct workspace *tree;

    if (!view) {
        ws_unref(built);
        return err_no_memory(err);
    }
    mutex_lock(&session->lock);
    tree = find_locked(session, key);
    if (!tree) {
        tree = ws_ref(built);
        view->key = key;
        view->tree = TAKE_PTR(built);
        list_add(session->views.next, &view->link);
        view = NULL;
    }
    mutex_unlock(&session->lock);
    ws_unref(built);
    free(view);
    close_views(session, 0, false);
    *out = tree;
    return 0;
}

int checkpoint_open(struct session *session, uint64_t key,
                    struct workspace **out, struct err *err)
{
    struct workspace *tree = checkpoint_opened(session, key);
    int rc = 0;

    if (!tree) {
        rc = call_open(session, key, &tree, err);
        if (rc == 0) {
            rc = keep(session, key, tree, &tree, err);
        }
    }
    if (rc == 0) {
        *out = tree;
    }
    return rc;
}
