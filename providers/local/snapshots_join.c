/*
 * Joins sealed layers, in the background. See snapshots_priv.h.
 *
 * A mount keeps the layers that it was made over, so what is made of many waits
 * until the session's next seal, which mounts anew. It is for that alone, and
 * nothing refers to it but us until then: a crash leaves what the next start
 * removes.
 */
#include "providers/local/snapshots_priv.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "core/crash.h"
#include "core/log.h"
#include "providers/local/layers.h"
#include "providers/local/note.h"
#include "providers/local/squash.h"

#include <stdlib.h>
#include <string.h>

struct joint {
    struct list link; /* snapshots->joints: by its lock, as `over`, */
    bool over;
    bool unwanted; /* and this. */
    struct snapshots *snapshots;
    uint64_t number; /* Of the session. */
    uint64_t top;    /* What is joined from here down; a reference. */
    uint64_t made;   /* In its place; a reference. 0: it failed. */
    char *dir;       /* As in struct sandbox. */
    char *config;
    struct cancel cancel;
};

static void free_joint(struct joint *joint)
{
    free(joint->dir);
    free(joint->config);
    cancel_done(&joint->cancel);
    free(joint);
}

static void end_joint(struct joint *joint)
{
    if (joint) {
        layers_unref(joint->snapshots->layers, joint->top);
        layers_unref(joint->snapshots->layers, joint->made);
        free_joint(joint);
    }
}

static struct joint *find_locked(struct snapshots *snapshots, uint64_t number)
    REQUIRES(snapshots->lock)
{
    list_each(node, &snapshots->joints)
    {
        struct joint *joint = container_of(node, struct joint, link);

        if (joint->number == number && !joint->unwanted) {
            return joint;
        }
    }
    return NULL;
}

/* ---- In the background ---- */

static int join(struct joint *joint, uint64_t *made, struct err *err)
{
    const struct limits limits = {.deadline_ms = DEADLINE_NONE,
                                  .cancel = &joint->cancel};
    const struct sandbox sandbox = {
        .number = joint->number, .dir = joint->dir, .config = joint->config};
    uint64_t bytes = 0;
    int rc = limits_check(&limits, "joining layers", err);
    const struct squash_ask ask = {.layers = joint->snapshots->layers,
                                   .volumes = joint->snapshots->volumes,
                                   .sandbox = &sandbox,
                                   .limits = &limits,
                                   .bytes = &bytes,
                                   .sealed = true};

    if (rc < 0) {
        return rc; /* It has waited, and nobody wants it any more. */
    }
    if (!layers_ref(ask.layers, joint->top)) {
        return err_set(err, ESTALE, "the layers are gone");
    }
    *made = joint->top;
    rc = squash(&ask, made, err);
    return rc == 0 && joint->snapshots->durable ? layers_sync(ask.layers, err)
                                                : rc;
}

static void run(void *arg)
{
    struct joint *joint = arg;
    struct snapshots *snapshots = joint->snapshots;
    struct err err = ERR_INIT;
    uint64_t made = 0;
    bool unwanted;

    if (join(joint, &made, &err) < 0) {
        log_debug("cannot join sealed layers: %s", err.msg);
        layers_unref(snapshots->layers, made);
        made = 0;
    }
    crash_point("local-join-made");
    mutex_lock(&snapshots->lock);
    joint->made = made;
    joint->over = true;
    unwanted = joint->unwanted;
    if (unwanted) {
        list_remove(&joint->link);
    }
    mutex_unlock(&snapshots->lock);
    if (unwanted) {
        end_joint(joint);
    }
}

static struct joint *new_joint(struct snapshots *snapshots,
                               const struct sandbox *sandbox, uint64_t top)
{
    struct joint *joint = calloc(1, sizeof(*joint));
    struct err ignored = ERR_INIT;

    if (!joint) {
        return NULL;
    }
    list_init(&joint->link);
    joint->snapshots = snapshots;
    joint->number = sandbox->number;
    joint->cancel.fd = -1;
    joint->dir = strdup(sandbox->dir);
    joint->config = strdup(sandbox->config);
    if (!joint->dir || !joint->config ||
        cancel_init(&joint->cancel, &ignored) < 0 ||
        !layers_ref(snapshots->layers, top)) {
        free_joint(joint);
        return NULL;
    }
    joint->top = top;
    return joint;
}

/* Also when it failed: the next seal brings another top. */
static bool was_begun(struct snapshots *snapshots, uint64_t number,
                      uint64_t top)
{
    const struct joint *joint;
    bool begun;

    mutex_lock(&snapshots->lock);
    joint = find_locked(snapshots, number);
    begun = joint && (!joint->over || joint->top == top);
    mutex_unlock(&snapshots->lock);
    return begun;
}

void snapshots_join(struct snapshots *snapshots, const struct sandbox *sandbox,
                    uint64_t top)
{
    const struct squash_ask ask = {.layers = snapshots->layers, .sealed = true};
    struct joint *joint;

    if (!note_trusted() || was_begun(snapshots, sandbox->number, top) ||
        !squash_due(&ask, top)) {
        return;
    }
    /* What could not be joined. */
    snapshots_join_drop(snapshots, sandbox->number, 0);
    joint = new_joint(snapshots, sandbox, top);
    if (!joint) {
        return;
    }
    mutex_lock(&snapshots->lock);
    list_add(&snapshots->joints, &joint->link);
    mutex_unlock(&snapshots->lock);
    if (workers_run(snapshots->joiners, run, joint) < 0) {
        mutex_lock(&snapshots->lock);
        list_remove(&joint->link);
        mutex_unlock(&snapshots->lock);
        end_joint(joint);
    }
}

/* ---- Its use ---- */

bool snapshots_joins(struct snapshots *snapshots, uint64_t number)
{
    const struct joint *joint;
    bool joins;

    mutex_lock(&snapshots->lock);
    joint = find_locked(snapshots, number);
    joins = joint && !joint->over;
    mutex_unlock(&snapshots->lock);
    return joins;
}

uint64_t snapshots_joined(struct snapshots *snapshots, uint64_t number,
                          uint64_t top)
{
    const struct joint *joint;

    mutex_lock(&snapshots->lock);
    joint = find_locked(snapshots, number);
    if (joint && joint->top == top && joint->made) {
        top = joint->made;
    }
    mutex_unlock(&snapshots->lock);
    return top;
}

void snapshots_join_drop(struct snapshots *snapshots, uint64_t number,
                         uint64_t but)
{
    struct joint *joint;

    mutex_lock(&snapshots->lock);
    joint = find_locked(snapshots, number);
    joint = joint && joint->top == but ? NULL : joint;
    if (joint && joint->over) {
        list_remove(&joint->link);
    } else if (joint) {
        joint->unwanted = true;
        cancel_fire(&joint->cancel);
        joint = NULL; /* Its thread ends it. */
    }
    mutex_unlock(&snapshots->lock);
    end_joint(joint);
}

void snapshots_join_stop(struct snapshots *snapshots)
{
    mutex_lock(&snapshots->lock);
    list_each(node, &snapshots->joints)
    {
        cancel_fire(&container_of(node, struct joint, link)->cancel);
    }
    mutex_unlock(&snapshots->lock);
}

void snapshots_join_end(struct snapshots *snapshots)
{
    struct list *node;

    mutex_lock(&snapshots->lock);
    node = list_pop(&snapshots->joints);
    while (node) {
        /* What only it refers to stays for the next start. */
        free_joint(container_of(node, struct joint, link));
        node = list_pop(&snapshots->joints);
    }
    mutex_unlock(&snapshots->lock);
}
