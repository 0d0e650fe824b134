/*
 * What differs between two states of a workspace. See changes.h.
 *
 * The tree may be hostile and may change meanwhile: every step follows no
 * link, the depth is bounded by memory only, and what vanishes under the walk
 * is taken as not there. The kernel's notes in layers (nodes that hide a
 * name, attributes of directories) only say where to look; what is told is what
 * one state shows against what the other shows.
 */
#include "providers/local/changes.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/list.h"
#include "providers/local/below.h"
#include "providers/local/compare.h"
#include "providers/local/note.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* How a directory's entries are found. */
enum look {
    LOOK_LAYERS, /* Those that the layers have. */
    LOOK_BOTH,   /* Those of both states. */
    LOOK_ADDED,  /* Those that are now: there was no such directory. */
};

/* A path that is to be judged; one on top of the other. */
struct item {
    struct item *below;
    enum look look;
    char path[];
};

struct walk {
    const struct changes_dirs *dirs;
    const struct limits *limits;
    provider_change_fn *fn;
    void *arg;
    struct item *top;
};

/* ---- The stack ---- */

static int push(struct walk *walk, const char *dir, const char *name,
                enum look look)
{
    size_t dir_len = strlen(dir);
    size_t size = dir_len + 1 + strlen(name) + 1;
    struct item *item = malloc(sizeof(*item) + size);

    if (!item) {
        return -ENOMEM;
    }
    (void)snprintf(item->path, size, "%s%s%s", dir, dir_len ? "/" : "", name);
    item->look = look;
    item->below = walk->top;
    walk->top = item;
    return 0;
}

static struct item *pop(struct walk *walk)
{
    struct item *item = walk->top;

    if (item) {
        walk->top = item->below;
    }
    return item;
}

/* ---- Listings ---- */

struct names {
    char **all;
    size_t count;
    size_t room;
};

static void free_names(struct names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->all[i]);
    }
    free(names->all);
}

static int add_name(struct names *names, const char *name)
{
    void *wide = array_grow((void *)names->all, names->count, &names->room,
                            sizeof(*names->all));

    if (!wide) {
        return -ENOMEM;
    }
    names->all = wide;
    names->all[names->count] = strdup(name);
    if (!names->all[names->count]) {
        return -ENOMEM;
    }
    names->count++;
    return 0;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Adds what a directory has; one that is not there, or shut to us, has nothing.
 */
static int list(struct names *names, int top, const char *path)
{
    int fd = below_open(top, path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    int rc = 0;

    if (!dir) {
        rc = fd < 0 ? fd : -ENOMEM;
        cleanup_fd(&fd);
        return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ||
                       rc == -EXDEV || rc == -EACCES
                   ? 0
                   : rc;
    }
    entry = readdir(dir);
    while (entry && rc == 0) {
        if (!is_dot(entry->d_name)) {
            rc = add_name(names, entry->d_name);
        }
        entry = readdir(dir);
    }
    (void)closedir(dir);
    return rc;
}

/* Descending, so that the first one comes to lie on top of the stack. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

static int push_names(struct walk *walk, const char *dir, enum look look,
                      struct names *names)
{
    int rc = 0;

    if (names->count > 0) {
        qsort(names->all, names->count, sizeof(*names->all), by_name);
    }
    for (size_t i = 0; rc == 0 && i < names->count; i++) {
        if (i == 0 || strcmp(names->all[i], names->all[i - 1]) != 0) {
            rc = push(walk, dir, names->all[i], look);
        }
    }
    return rc;
}

static int list_layers(const struct walk *walk, struct names *names,
                       const char *dir)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < walk->dirs->count; i++) {
        rc = list(names, walk->dirs->layers[i], dir);
    }
    return rc;
}

/* Puts what is in a directory on the stack. */
static int enter(struct walk *walk, const char *dir, enum look look,
                 struct err *err)
{
    struct names names = {.all = NULL};
    int rc = look == LOOK_LAYERS ? list_layers(walk, &names, dir)
                                 : list(&names, walk->dirs->now, dir);

    if (rc == 0 && look == LOOK_BOTH) {
        rc = list(&names, walk->dirs->then, dir);
    }
    if (rc == 0) {
        rc = push_names(walk, dir, look, &names);
    }
    free_names(&names);
    return rc < 0 ? err_set(err, -rc, "cannot list '%.128s'", dir) : 0;
}

/* ---- Judging ---- */

static int tell(const struct walk *walk, char kind, const char *path,
                struct err *err)
{
    int rc = walk->fn(walk->arg, kind, path);

    return rc < 0 ? err_set(err, -rc, "cannot tell all changes") : 0;
}

static bool has_note(int fd)
{
    return note_get(fd, NOTE_OPAQUE, NULL, 0) >= 0 ||
           note_get(fd, NOTE_REDIRECT, NULL, 0) >= 0;
}

/*
 * Whether what a directory shows from below may not be what was at its place:
 * it was made anew, or moved here.
 */
static bool is_moved(const struct walk *walk, const char *path)
{
    bool moved = false;

    for (size_t i = 0; !moved && i < walk->dirs->count; i++) {
        AUTO_FD int fd =
            below_open(walk->dirs->layers[i], path, O_RDONLY | O_DIRECTORY);

        /* Something else was there in between. */
        moved = fd >= 0 ? has_note(fd) : fd != -ENOENT;
    }
    return moved;
}

static int judge_added(struct walk *walk, const char *path,
                       const struct compare_file *now, struct err *err)
{
    int rc = tell(walk, 'A', path, err);

    return rc == 0 && S_ISDIR(now->attr.st_mode)
               ? enter(walk, path, LOOK_ADDED, err)
               : rc;
}

static int judge_dirs(struct walk *walk, const struct item *item,
                      const struct compare_file *now,
                      const struct compare_file *then, struct err *err)
{
    enum look look = item->look;
    int rc = 0;

    if ((now->attr.st_mode & 07777) != (then->attr.st_mode & 07777)) {
        rc = tell(walk, 'M', item->path, err);
    }
    if (look == LOOK_LAYERS && is_moved(walk, item->path)) {
        look = LOOK_BOTH;
    }
    return rc == 0 ? enter(walk, item->path, look, err) : rc;
}

/* There on both sides. */
static int judge_both(struct walk *walk, const struct item *item,
                      const struct compare_file *now,
                      const struct compare_file *then, struct err *err)
{
    bool now_dir = S_ISDIR(now->attr.st_mode);
    bool then_dir = S_ISDIR(then->attr.st_mode);
    bool same = false;
    int rc;

    if (now_dir && then_dir) {
        return judge_dirs(walk, item, now, then, err);
    }
    if (now_dir || then_dir) {
        rc = tell(walk, 'D', item->path, err);
        return rc == 0 ? judge_added(walk, item->path, now, err) : rc;
    }
    rc = compare_same(walk->dirs->store, now, then, walk->limits, &same, err);
    return rc == 0 && !same ? tell(walk, 'M', item->path, err) : rc;
}

/* What is shut to us cannot be told. */
static int skip_shut(int rc, struct err *err)
{
    if (rc == -EACCES) {
        err_clear(err);
        rc = 0;
    }
    return rc;
}

static int judge(struct walk *walk, const struct item *item, struct err *err)
{
    struct compare_file now;
    struct compare_file then;
    int base = item->look == LOOK_ADDED ? -1 : walk->dirs->then;
    int rc = compare_find(walk->dirs->now, item->path, &now, err);

    if (rc < 0) {
        return skip_shut(rc, err);
    }
    rc = compare_find(base, item->path, &then, err);
    if (rc < 0) {
        cleanup_fd(&now.fd);
        return skip_shut(rc, err);
    }
    if (now.fd < 0 && then.fd >= 0) {
        rc = tell(walk, 'D', item->path, err);
    } else if (now.fd >= 0 && then.fd < 0) {
        rc = judge_added(walk, item->path, &now, err);
    } else if (now.fd >= 0) {
        rc = judge_both(walk, item, &now, &then, err);
    }
    cleanup_fd(&now.fd);
    cleanup_fd(&then.fd);
    return rc;
}

int changes_tell(const struct changes_dirs *dirs, const struct limits *limits,
                 provider_change_fn *fn, void *arg, struct err *err)
{
    struct walk walk = {
        .dirs = dirs, .limits = limits, .fn = fn, .arg = arg, .top = NULL};
    struct item *item;
    int rc = enter(&walk, "", dirs->all ? LOOK_ADDED : LOOK_LAYERS, err);

    item = pop(&walk);
    while (item) {
        if (rc == 0) {
            rc = limits_check(limits, "too much has changed to look at", err);
        }
        if (rc == 0) {
            rc = judge(&walk, item, err);
        }
        free(item);
        item = pop(&walk);
    }
    return rc;
}
