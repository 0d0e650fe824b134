/*
 * One layer in place of several. See squash.h.
 *
 * Their trees are merged in memory, as an overlay would: what is above hides
 * what is below. Then each file is copied from the layer that has it; a large
 * one is linked, as layers never change. What the kernel only noted as moved,
 * in a sealed one, is copied to where it is shown.
 */
#include "providers/local/squash.h"

#include "core/cleanup.h"
#include "core/crash.h"
#include "providers/local/below.h"
#include "providers/local/copy.h"
#include "providers/local/lay.h"
#include "providers/local/layers.h"
#include "providers/local/note.h"
#include "providers/local/parts.h"
#include "providers/local/scan.h"
#include "providers/local/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    MANY = 32, /* Of one tier, become one of the next. */
    LINK_LEAST = 1024 * 1024,
    DIR_ROOM = 4096,
    LEFT_PART = 10,      /* Joining in the background leaves this part of the */
    LEFT_MOST_MB = 2048, /* disk, or so much: twice what commands need. */
};

/* Two directories of one path that are to be merged. */
struct pair {
    struct pair *next;
    struct scan_node *above;
    struct scan_node *below;
};

struct squashing {
    const struct limits *limits;
    struct err *err;
    uint64_t *bytes;
    struct parts_place parts; /* `others` are the layers. */
    int *dirs;                /* Of them, from the top one down. */
    size_t count;
    struct scan_node *tree;
    struct pair *pairs;
    bool sealed; /* As it was asked. */
    int dst;     /* Where the walk is. */
    int top;     /* The new layer. */
    int view;    /* What lies below it shows; */
    int all;     /* and they, where something was moved in them; or -1. */
    void *links; /* tsearch(): files with more names, that have one. */
};

static int fail(struct squashing *sq, int rc)
{
    return err_set(sq->err, -rc, "cannot join layers: %s", strerror(-rc));
}

/* ---- Merging ---- */

static int push(struct squashing *sq, struct scan_node *above,
                struct scan_node *below)
{
    struct pair *pair = malloc(sizeof(*pair));

    if (!pair) {
        return -ENOMEM;
    }
    *pair = (struct pair){.next = sq->pairs, .above = above, .below = below};
    sq->pairs = pair;
    return 0;
}

/* The same name in both; the lower one is freed, at last. */
static int merge_name(struct squashing *sq, struct scan_node *above,
                      struct scan_node *below)
{
    /* What was moved there lay elsewhere below. */
    if (S_ISDIR(above->mode) && !above->opaque && !above->expand) {
        if (S_ISDIR(below->mode)) {
            above->opaque = below->opaque;
            above->expand = below->expand;
            return push(sq, above, below);
        }
        /* It hid what lies still lower. */
        above->opaque = true;
    }
    scan_free(below);
    return 0;
}

/* Both are sorted, and so is what becomes of them. */
static int merge_dir(struct squashing *sq, struct scan_node *above,
                     struct scan_node *below)
{
    struct scan_node **all =
        calloc((size_t)above->count + below->count + 1, sizeof(*all));
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t count = 0;
    int rc = all ? 0 : -ENOMEM;

    while (rc == 0 && (a < above->count || b < below->count)) {
        int order = a == above->count ? 1
                    : b == below->count
                        ? -1
                        : strcmp(above->below[a]->name, below->below[b]->name);

        if (order > 0) {
            all[count] = below->below[b++];
            all[count++]->parent = above;
            continue;
        }
        if (order == 0) {
            rc = merge_name(sq, above->below[a], below->below[b++]);
        }
        all[count++] = above->below[a++];
    }
    if (rc < 0) {
        free(all);
        return rc;
    }
    free(above->below);
    above->below = all;
    above->count = count;
    below->count = 0; /* They have moved. */
    scan_free(below);
    return 0;
}

static int merge_trees(struct squashing *sq, struct scan_node *below)
{
    int rc = push(sq, sq->tree, below);

    if (rc < 0) {
        scan_free(below);
    }
    while (rc == 0 && sq->pairs) {
        struct pair pair = *sq->pairs;

        free(sq->pairs);
        sq->pairs = pair.next;
        rc = merge_dir(sq, pair.above, pair.below);
    }
    return rc < 0 ? fail(sq, rc) : 0;
}

static int read_layer(struct squashing *sq, size_t i)
{
    const struct scan_ask ask = {.dir = sq->dirs[i], .source = (uint32_t)i};
    struct scan_node *tree;
    int rc = scan_take(&ask, sq->limits, &tree, sq->err);

    if (rc < 0) {
        return rc;
    }
    if (!sq->tree) {
        sq->tree = tree;
        return 0;
    }
    return merge_trees(sq, tree);
}

/* ---- Writing ---- */

static int by_ino(const void *a, const void *b)
{
    const struct scan_node *left = a;
    const struct scan_node *right = b;

    return left->ino < right->ino ? -1 : left->ino > right->ino;
}

/* The directory that a node lies in, in a tree. */
static int open_parent(int top, const struct scan_node *node)
{
    AUTO_FREE char *path = scan_path(node->parent);

    return path ? below_open(top, path, O_PATH | O_DIRECTORY) : -ENOMEM;
}

static int link_from(const struct squashing *sq, int top,
                     const struct scan_node *from, const char *name)
{
    AUTO_FD int dir = open_parent(top, from);

    if (dir < 0) {
        return dir;
    }
    return linkat(dir, from->name, sq->dst, name, 0) < 0 ? -errno : 0;
}

static int put_copy(struct squashing *sq, const struct scan_node *node)
{
    AUTO_FD int dir = open_parent(sq->dirs[node->source], node);

    return dir < 0
               ? fail(sq, dir)
               : copy_file(dir, node->name, sq->dst, NULL, sq->bytes, sq->err);
}

struct big {
    struct squashing *sq;
    const char *path;
};

static int join_content(void *arg, int from, int to)
{
    const struct big *big = arg;
    struct parts *parts = NULL;
    int rc = parts_open(big->sq->parts.store, from, &parts);

    if (rc == 0) {
        rc = parts_join(&big->sq->parts, big->path, parts, to);
    }
    parts_close(parts);
    return rc;
}

static int put_shared(struct squashing *sq, int dir,
                      const struct scan_node *node)
{
    int rc = linkat(dir, node->name, sq->dst, node->name, 0) < 0 ? -errno : 0;

    return rc < 0 ? fail(sq, rc) : 0;
}

/* One that may lie in parts. */
static int put_big(struct squashing *sq, const struct scan_node *node)
{
    AUTO_FREE char *path = scan_path(node);
    AUTO_FD int dir = open_parent(sq->dirs[node->source], node);
    AUTO_FD int fd = dir < 0 ? dir : below_open(dir, node->name, O_PATH);
    struct big big = {.sq = sq, .path = path};
    const struct copy_how how = {.content = join_content, .arg = &big};

    if (fd < 0 || !path) {
        return fail(sq, fd < 0 ? fd : -ENOMEM);
    }
    if (parts_is(fd)) {
        return copy_file(dir, node->name, sq->dst, &how, sq->bytes, sq->err);
    }
    return node->size >= LINK_LEAST ? put_shared(sq, dir, node)
                                    : put_copy(sq, node);
}

static int put_linked(struct squashing *sq, struct scan_node *node)
{
    struct scan_node **first = tsearch(node, &sq->links, by_ino);
    int rc;

    if (!first) {
        return fail(sq, -ENOMEM);
    }
    if (*first == node) {
        return put_copy(sq, node);
    }
    rc = link_from(sq, sq->top, *first, node->name);
    return rc < 0 ? fail(sq, rc) : 0;
}

/* One that hides nothing would be seen: only in a directory that is joined with
 * one from below are they left out. */
static bool hides(const struct squashing *sq, const struct scan_node *node)
{
    AUTO_FREE char *path = scan_path(node->parent);
    AUTO_FD int dir = -1;

    if (path && !node->parent->cover) {
        dir = below_open(sq->view, path, O_PATH | O_DIRECTORY);
    }
    return dir >= 0;
}

static int put_file(struct squashing *sq, struct scan_node *node)
{
    int rc;

    if (node->whiteout && !hides(sq, node)) {
        return 0;
    }
    if (node->whiteout) {
        rc = mknodat(sq->dst, node->name, S_IFCHR, makedev(0, 0)) < 0 ? -errno
                                                                      : 0;
        return rc < 0 ? fail(sq, rc) : 0;
    }
    if (scan_is_tied(node)) {
        return put_linked(sq, node);
    }
    if (S_ISREG(node->mode) &&
        (node->size >= LINK_LEAST || node->size >= parts_least())) {
        return put_big(sq, node);
    }
    return put_copy(sq, node);
}

static int enter(struct squashing *sq, struct scan_node *dir)
{
    int rc = mkdirat(sq->dst, dir->name, 0700) < 0 ? -errno : 0;

    if (rc == 0) {
        rc = copy_step_in(&sq->dst, dir->name);
    }
    dir->expand = !dir->opaque && (dir->expand || dir->parent->expand);
    if (rc == 0 && (dir->opaque || (dir->expand && !dir->parent->cover))) {
        rc = note_set_opaque(sq->dst);
    }
    /* Nothing shows through, nor through what is in it. */
    dir->cover = dir->opaque || dir->expand || dir->parent->cover;
    *sq->bytes += DIR_ROOM;
    return rc < 0 ? fail(sq, rc) : 0;
}

/* What it shows from elsewhere. */
static int fill(struct squashing *sq, const struct scan_node *dir)
{
    struct lay_sum sum = {0};
    int rc = lay_fill(sq->all, dir, sq->dst, sq->limits, &sum, sq->err);

    *sq->bytes += sum.bytes;
    return rc;
}

static int leave(struct squashing *sq, const struct scan_node *dir)
{
    AUTO_FREE char *path = scan_path(dir);
    AUTO_FD int from =
        path ? below_open(sq->dirs[dir->source], path, O_RDONLY | O_DIRECTORY)
             : -ENOMEM;
    int rc = dir->expand ? fill(sq, dir) : 0;

    if (rc < 0) {
        return rc;
    }
    return from < 0 ? fail(sq, from) : copy_dir_attr(from, sq->dst, sq->err);
}

static bool is_short(const struct statvfs *disk)
{
    const uint64_t part = (uint64_t)disk->f_blocks / LEFT_PART;
    const uint64_t most = ((uint64_t)LEFT_MOST_MB << 20) / disk->f_frsize;

    return disk->f_bavail < (part < most ? part : most);
}

static int check(const struct squashing *sq)
{
    struct statvfs disk;
    int rc = limits_check(sq->limits, "joining layers takes too long", sq->err);

    if (rc == 0 && sq->sealed && fstatvfs(sq->top, &disk) == 0 &&
        is_short(&disk)) {
        rc = err_set(sq->err, ENOSPC, "joining layers takes too much room");
    }
    return rc;
}

static int write_tree(struct squashing *sq)
{
    struct scan_node *dir = sq->tree;
    int rc = 0;

    while (rc == 0) {
        struct scan_node *node =
            dir->at < dir->count ? dir->below[dir->at++] : NULL;

        rc = check(sq);
        if (rc == 0 && !node) {
            rc = leave(sq, dir);
            if (rc < 0 || dir == sq->tree) {
                return rc;
            }
            rc = copy_step_out(&sq->dst);
            rc = rc < 0 ? fail(sq, rc) : 0;
            dir = dir->parent;
        } else if (rc == 0 && S_ISDIR(node->mode)) {
            rc = enter(sq, node);
            dir = node;
        } else if (rc == 0) {
            rc = put_file(sq, node);
        }
    }
    return rc;
}

/* ---- The whole ---- */

static void forget(void *node)
{
    (void)node;
}

static void done(struct squashing *sq)
{
    while (sq->pairs) {
        struct pair *pair = sq->pairs;

        sq->pairs = pair->next;
        scan_free(pair->below);
        free(pair);
    }
    for (size_t i = 0; sq->dirs && i < sq->count; i++) {
        cleanup_fd(&sq->dirs[i]);
    }
    free(sq->dirs);
    tdestroy(sq->links, forget);
    scan_free(sq->tree);
    cleanup_fd(&sq->dst);
}

static int read_all(struct squashing *sq, const struct layers *layers,
                    const uint64_t *ids)
{
    int rc = 0;

    sq->dirs = calloc(sq->count, sizeof(*sq->dirs));
    if (!sq->dirs) {
        return fail(sq, -ENOMEM);
    }
    memset(sq->dirs, 0xff, sq->count * sizeof(*sq->dirs)); /* All -1. */
    for (size_t i = 0; rc == 0 && i < sq->count; i++) {
        char name[32];

        (void)snprintf(name, sizeof(name), "%" PRIu64, ids[i]);
        sq->dirs[i] = copy_open(layers_dir(layers), name, O_DIRECTORY);
        rc = sq->dirs[i] < 0 ? fail(sq, sq->dirs[i]) : read_layer(sq, i);
    }
    return rc;
}

/* What is joined. */
struct joint {
    uint64_t id; /* Of the layer to be, */
    int dst;     /* open, in place of */
    const uint64_t *ids;
    size_t count;
    int view; /* As in struct squashing, */
    int all;  /* like this. */
};

static int join(const struct squash_ask *ask, const struct joint *joint,
                struct err *err)
{
    struct squashing sq = {.limits = ask->limits,
                           .err = err,
                           .bytes = ask->bytes,
                           .parts = {.store = layers_dir(ask->layers),
                                     .layer = joint->id,
                                     .others = joint->ids,
                                     .count = joint->count,
                                     .limits = ask->limits,
                                     .bytes = ask->bytes},
                           .count = joint->count,
                           .sealed = ask->sealed,
                           .top = joint->dst,
                           .view = joint->view,
                           .all = joint->all,
                           .dst = -1};
    int rc = read_all(&sq, ask->layers, joint->ids);

    if (rc == 0) {
        sq.dst = openat(joint->dst, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = sq.dst < 0 ? fail(&sq, -errno) : write_tree(&sq);
    }
    done(&sq);
    return rc;
}

static int view(const struct squash_ask *ask, uint64_t top, struct err *err)
{
    return volume_view(ask->volumes, ask->sandbox, top, ask->limits, err);
}

/* Says 1 when it has made one of many. */
static int squash_tier(const struct squash_ask *ask, uint64_t *top,
                       struct err *err)
{
    AUTO_FREE uint64_t *ids = NULL;
    struct layers_tier tier = {.sealed = ask->sealed};
    size_t count = 0;
    uint64_t id = 0;
    AUTO_FD int below = -1;
    AUTO_FD int all = -1;
    AUTO_FD int dst = -1;
    int rc = layers_top(ask->layers, *top, MANY, &tier, &ids, &count, err);

    if (rc < 0 || count < MANY) {
        return rc;
    }
    below = view(ask, tier.below, err);
    all = below >= 0 && ask->sealed ? view(ask, *top, err) : -1;
    if (below < 0 || (ask->sealed && all < 0)) {
        return -err->code;
    }
    dst = layers_make(ask->layers, tier.below, tier.tier + 1, &id, err);
    if (dst < 0) {
        return dst;
    }
    if (ask->sealed) {
        /* What comes to lie on it is made later: that nobody waits for it. */
        layers_done(ask->layers, id);
        crash_point("local-join-begun");
    }
    rc = join(ask, &(const struct joint){id, dst, ids, count, below, all}, err);
    if (rc < 0) {
        layers_unref(ask->layers, id);
        return rc;
    }
    layers_unref(ask->layers, *top);
    *top = id;
    return 1;
}

bool squash_due(const struct squash_ask *ask, uint64_t top)
{
    AUTO_FREE uint64_t *ids = NULL;
    struct layers_tier tier = {.sealed = ask->sealed};
    struct err ignored = ERR_INIT;
    size_t count = 0;

    return layers_top(ask->layers, top, MANY, &tier, &ids, &count, &ignored) ==
               0 &&
           count > 0;
}

int squash(const struct squash_ask *ask, uint64_t *top, struct err *err)
{
    int rc = 1;

    /* One more may be one too many of its tier. */
    while (rc == 1) {
        rc = squash_tier(ask, top, err);
    }
    /* To a user who is not root they may be shut. */
    if (rc == -EACCES && geteuid() != 0) {
        err_clear(err);
        rc = 0;
    }
    return rc;
}
