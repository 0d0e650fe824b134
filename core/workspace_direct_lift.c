/* What the first change of a file moves above it. See ws_lift(). */
#include "core/workspace_direct.h"

/* Where a node was last seen, with a reference; NULL: that is not known, or it
 * is the root. */
static struct direct_node *take_parent(struct direct_node *node)
{
    struct direct *d = direct_tree(node);
    struct direct_node *dir;

    mutex_lock(&d->base.lock);
    dir = node == &d->root ? NULL : direct_node_parent_locked(d, node);
    if (dir) {
        (void)ws_node_ref_locked(&dir->base);
    }
    mutex_unlock(&d->base.lock);
    return dir;
}

void direct_lift(struct ws_node *base, ws_lifted_fn *fn, void *arg)
{
    struct direct_node *node = direct_node_of(base);
    struct direct_node *held = NULL; /* What `node` is, above the first. */

    if (atomic_load(&node->lifted)) {
        return;
    }
    fn(arg, base);
    while (node && !atomic_exchange(&node->lifted, true)) {
        struct direct_node *above = take_parent(node);

        if (above) {
            fn(arg, &above->base);
        }
        ws_node_unref(held ? &held->base : NULL);
        held = above;
        node = above;
    }
    ws_node_unref(held ? &held->base : NULL);
}
