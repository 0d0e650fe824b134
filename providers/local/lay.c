/* Writes a layer. See lay.h. */
#include "providers/local/lay.h"

#include "core/cleanup.h"
#include "providers/local/below.h"
#include "providers/local/copy.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"
#include "providers/local/shut.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/sysmacros.h>

enum {
    DIR_ROOM = 4096
};

struct lay {
    const struct lay_plan *plan;
    const struct limits *limits;
    struct lay_sum *sum;
    struct err *err;
    int src;     /* Where the walk is, */
    int dst;     /* in both. */
    void *links; /* tsearch(): files with more names, that have one. */
};

static int fail(struct lay *lay, int rc, const char *name)
{
    return err_set(lay->err, -rc, "cannot keep '%.128s': %s", name,
                   strerror(-rc));
}

static int check(struct lay *lay)
{
    return limits_check(lay->limits, "the checkpoint takes too long", lay->err);
}

/* ---- Files ---- */

static int by_ino(const void *a, const void *b)
{
    const struct scan_node *left = a;
    const struct scan_node *right = b;

    return left->ino < right->ino ? -1 : left->ino > right->ino;
}

/* The file as it was written under its first name. */
static int link_to(const struct lay *lay, const struct scan_node *first,
                   const char *name)
{
    AUTO_FREE char *path = scan_path(first->parent);
    AUTO_FD int dir = -1;

    if (!path) {
        return -ENOMEM;
    }
    dir = below_open(lay->plan->dst, path, O_PATH | O_DIRECTORY);
    if (dir < 0) {
        return dir;
    }
    return linkat(dir, first->name, lay->dst, name, 0) < 0 ? -errno : 0;
}

struct big {
    const struct parts_place *place;
    const char *path;
};

/* Where blocks can be shared nothing else is to be done. */
static int put_content(void *arg, int from, int to)
{
    const struct big *big = arg;
    int rc = copy_clone(from, to);

    if (rc < 0) {
        rc = parts_put(big->place, big->path, from, to);
    }
    return rc > 0 ? copy_content(from, to) : rc;
}

/* Of one with more names only the first would be found. */
static int put_big(struct lay *lay, const struct scan_node *node)
{
    AUTO_FREE char *path = scan_path(node);
    struct big big = {.place = lay->plan->parts, .path = path};
    const struct copy_how how = {.content = put_content, .arg = &big};

    return path ? copy_file(lay->src, node->name, lay->dst, &how,
                            &lay->sum->bytes, lay->err)
                : fail(lay, -ENOMEM, node->name);
}

static int put_copy(struct lay *lay, const struct scan_node *node)
{
    return copy_file(lay->src, node->name, lay->dst, NULL, &lay->sum->bytes,
                     lay->err);
}

static int put_tied(struct lay *lay, struct scan_node *node)
{
    struct scan_node **first = tsearch(node, &lay->links, by_ino);
    int rc;

    if (!first) {
        return fail(lay, -ENOMEM, node->name);
    }
    if (*first == node) {
        return put_copy(lay, node);
    }
    rc = link_to(lay, *first, node->name);
    return rc < 0 ? fail(lay, rc, node->name) : 0;
}

static bool is_big(const struct lay *lay, const struct scan_node *node)
{
    return lay->plan->parts && S_ISREG(node->mode) &&
           node->size >= parts_least();
}

static int hide(struct lay *lay, const char *name)
{
    lay->sum->changed++;
    return mknodat(lay->dst, name, S_IFCHR, makedev(0, 0)) < 0
               ? fail(lay, -errno, name)
               : 0;
}

static int put_file(struct lay *lay, struct scan_node *node)
{
    int rc;

    if (node->whiteout) {
        /* In a directory where all is new there is nothing to hide. */
        return node->parent->cover ? 0 : hide(lay, node->name);
    }
    lay->sum->changed++;
    rc = lay->plan->shut ? shut_open(lay->plan->shut, node) : 0;
    if (rc < 0) {
        return fail(lay, rc, node->name);
    }
    if (scan_is_tied(node)) {
        return put_tied(lay, node);
    }
    return is_big(lay, node) ? put_big(lay, node) : put_copy(lay, node);
}

/* ---- Directories ---- */

static bool is_new(const struct scan_node *dir)
{
    return !dir->kept && (!dir->old || dir->old->mode != dir->mode);
}

static int enter(struct lay *lay, const struct scan_node *dir)
{
    int rc = mkdirat(lay->dst, dir->name, 0700) < 0 ? -errno : 0;

    if (rc == 0) {
        rc = copy_step_in(&lay->src, dir->name);
    }
    if (rc == 0) {
        rc = copy_step_in(&lay->dst, dir->name);
    }
    if (rc == 0 && dir->cover && !dir->parent->cover) {
        rc = note_set_opaque(lay->dst);
    }
    lay->sum->changed += is_new(dir);
    lay->sum->bytes += DIR_ROOM;
    return rc < 0 ? fail(lay, rc, dir->name) : 0;
}

static bool is_gone(const struct scan_node *dir, const struct scan_node *was)
{
    return !was->whiteout && !scan_find(dir, was->name);
}

static int hide_gone(struct lay *lay, const struct scan_node *dir)
{
    const struct scan_node *old = dir->old;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && old && i < old->count; i++) {
        if (is_gone(dir, old->below[i])) {
            rc = hide(lay, old->below[i]->name);
        }
    }
    return rc;
}

static int leave(struct lay *lay, const struct scan_node *dir)
{
    int rc = hide_gone(lay, dir);

    if (rc == 0 && dir->expand) {
        rc = lay_fill(lay->plan->merged, dir, lay->dst, lay->limits, lay->sum,
                      lay->err);
    }
    return rc == 0 ? copy_dir_attr(lay->src, lay->dst, lay->err) : rc;
}

/* ---- The walk ---- */

static int step_out(struct lay *lay)
{
    int rc = copy_step_out(&lay->src);

    if (rc == 0) {
        rc = copy_step_out(&lay->dst);
    }
    return rc < 0 ? fail(lay, rc, "..") : 0;
}

static int walk(struct lay *lay)
{
    struct scan_node *dir = lay->plan->top;
    int rc = 0;

    while (rc == 0) {
        struct scan_node *node = scan_next(dir);

        rc = check(lay);
        if (rc == 0 && !node) {
            rc = leave(lay, dir);
            if (rc < 0 || dir == lay->plan->top) {
                return rc;
            }
            rc = step_out(lay);
            dir = dir->parent;
        } else if (rc == 0 && S_ISDIR(node->mode)) {
            rc = enter(lay, node);
            dir = node;
        } else if (rc == 0) {
            rc = put_file(lay, node);
        }
    }
    return rc;
}

static void forget(void *node)
{
    (void)node;
}

int lay_write(const struct lay_plan *plan, const struct limits *limits,
              struct lay_sum *sum, struct err *err)
{
    struct lay lay = {.plan = plan, .limits = limits, .sum = sum, .err = err};
    int rc;

    lay.src = openat(plan->src, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lay.dst = openat(plan->dst, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = lay.src < 0 || lay.dst < 0 ? err_errno(err, "cannot open a layer")
                                    : walk(&lay);
    cleanup_fd(&lay.src);
    cleanup_fd(&lay.dst);
    tdestroy(lay.links, forget);
    return rc;
}

int lay_fill(int view, const struct scan_node *dir, int dst,
             const struct limits *limits, struct lay_sum *sum, struct err *err)
{
    AUTO_FREE char *path = scan_path(dir);
    AUTO_FD int shown =
        path ? below_open(view, path, O_RDONLY | O_DIRECTORY) : -ENOMEM;
    const struct scan_ask ask = {.dir = shown, .skip = dir, .plain = true};
    struct lay_plan plan = {.src = shown, .merged = -1, .dst = dst};
    int rc;

    if (shown < 0) {
        return err_set(err, -shown, "cannot keep '%.128s': %s", dir->name,
                       strerror(-shown));
    }
    rc = scan_take(&ask, limits, &plan.top, err);
    if (rc == 0) {
        rc = lay_write(&plan, limits, sum, err);
        scan_free(plan.top);
    }
    return rc;
}

/* ---- Counting ---- */

static void count_gone(const struct scan_node *dir, struct lay_sum *sum)
{
    const struct scan_node *old = dir->old;

    for (uint32_t i = 0; old && i < old->count; i++) {
        sum->changed += is_gone(dir, old->below[i]);
    }
}

static void count_file(const struct scan_node *node, struct lay_sum *sum)
{
    if (node->whiteout) {
        sum->changed += !node->parent->cover;
        return;
    }
    sum->changed++;
    sum->bytes += S_ISREG(node->mode) ? node->size : 0;
}

bool lay_count(struct scan_node *top, struct lay_sum *sum)
{
    struct scan_node *dir = top;
    bool whole = true;

    while (dir) {
        struct scan_node *node = scan_next(dir);

        if (!node) {
            count_gone(dir, sum);
            dir = dir == top ? NULL : dir->parent;
        } else if (S_ISDIR(node->mode)) {
            whole = whole && !node->expand;
            sum->changed += is_new(node);
            sum->bytes += DIR_ROOM;
            dir = node;
        } else {
            count_file(node, sum);
        }
    }
    return whole;
}
