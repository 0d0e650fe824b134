/* Renames of directories, beside what is done with files below them. */
#include "core/remote_stage.h"

#include "core/clock.h"

#include <errno.h>
#include <string.h>

enum {
    /* Who is never still below a directory holds its rename up for so long; a
     * file that is being sent then fails, and says so. */
    PATIENCE_MS = 5000
};

static bool lies_below(const struct remote_node *node,
                       const struct remote_node *dir)
{
    while (node && node != dir) {
        node = node->parent;
    }
    return node != NULL;
}

/* Whether somebody is in a stage below a directory. */
static bool is_busy_below(struct remote *r, const struct remote_node *dir)
    REQUIRES(r->base.lock)
{
    list_each(link, &r->staged)
    {
        const struct remote_stage *stage =
            container_of(link, struct remote_stage, link);

        if ((stage->busy || stage->sending) && lies_below(stage->node, dir)) {
            return true;
        }
    }
    return false;
}

int remote_move_begin(struct remote_node *node, const struct limits *limits,
                      struct err *err)
{
    const int64_t until = clock_deadline(PATIENCE_MS);
    struct remote *r;
    int rc = 0;

    if (!node || !S_ISDIR(node->type)) {
        return 0;
    }
    r = remote_tree(node);
    mutex_lock(&r->base.lock);
    while (rc == 0 && is_busy_below(r, node) && clock_ms() < until) {
        rc = remote_wait(r, limits, err);
    }
    node->moving += rc == 0;
    mutex_unlock(&r->base.lock);
    return rc;
}

void remote_move_end(struct remote_node *node)
{
    struct remote *r;

    if (!node || !S_ISDIR(node->type)) {
        return;
    }
    r = remote_tree(node);
    mutex_lock(&r->base.lock);
    node->moving--;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

bool remote_is_moving(const struct remote *r, const struct remote_node *node)
{
    (void)r;
    while (node && !node->moving) {
        node = node->parent;
    }
    return node != NULL;
}

bool remote_has_moved(struct remote_node *node, const char *path,
                      const struct limits *limits)
{
    struct remote *r = remote_tree(node);
    struct err unused = ERR_INIT;
    struct remote_path now;
    int rc = 0;

    mutex_lock(&r->base.lock);
    while (rc == 0 && remote_is_moving(r, node)) {
        rc = remote_wait(r, limits, &unused);
    }
    mutex_unlock(&r->base.lock);
    return rc == 0 && remote_path(node, NULL, &now, &unused) == 0 &&
           strcmp(now.text, path) != 0;
}
