/*
 * What is known of a sandbox's files, or is asked for now: a name, a listing,
 * or a whole tree where somebody walks.
 */
#include "core/workspace_remote.h"

#include "core/array.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum {
    SLICE_MS = 250,      /* How often a wait looks at its token. */
    WALK_MS = 2000,      /* Two directories within this time: a walk. */
    WIDE_MS = 60 * 1000, /* How long a tree counts as too large to be told. */
    TREE_MOST = 16384,   /* Names of a tree that is told at once. */
    LOOK_MOST = 2048,    /* Entries of a directory that are told with it. */
};

/* ---- Calls ---- */

int remote_wait(struct remote *r, const struct limits *limits, struct err *err)
{
    int64_t until = clock_deadline(SLICE_MS);

    if (limits->deadline_ms < until) {
        until = limits->deadline_ms;
    }
    (void)cond_wait(&r->turn, &r->base.lock, until);
    return limits_check(limits, "other calls of the engine do not end", err);
}

int remote_begin(struct remote *r, const struct limits *limits, struct err *err)
{
    unsigned most = r->files->at_once ? r->files->at_once : 1;
    int rc = 0;

    mutex_lock(&r->base.lock);
    while (r->calls >= most && rc == 0) {
        rc = remote_wait(r, limits, err);
    }
    r->calls += rc == 0;
    mutex_unlock(&r->base.lock);
    if (rc == 0) {
        provider_files_begin(r->provider);
    }
    return rc;
}

ssize_t remote_end(struct remote *r, ssize_t rc, struct err *err)
{
    rc = provider_files_end(r->provider, rc, err);
    mutex_lock(&r->base.lock);
    r->calls--;
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
    return rc;
}

/* ---- One load of a directory at a time ---- */

struct remote_load {
    struct list link; /* r->loads */
    const char *path;
    bool tree;
    bool large; /* Nobody who wants one name waits for all of them. */
};

/* The length of a path's directory. */
static size_t dir_len(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

/* Whether a path of some length is dir or lies below it. */
static bool lies_in(const char *path, size_t len, const char *dir)
{
    size_t n = strlen(dir);

    return !n || (len >= n && strncmp(path, dir, n) == 0 &&
                  (len == n || path[n] == '/'));
}

/* Whether the directory of that name is being told now. */
static bool is_coming(struct remote *r, const char *dir, size_t len)
    REQUIRES(r->base.lock)
{
    list_each(node, &r->loads)
    {
        const struct remote_load *load =
            container_of(node, struct remote_load, link);

        if (!load->large &&
            (load->tree ? lies_in(dir, len, load->path)
                        : strlen(load->path) == len &&
                              strncmp(load->path, dir, len) == 0)) {
            return true;
        }
    }
    return false;
}

/* Waits while somebody else loads a directory; 1 where somebody did. */
static int wait_for_it(struct remote *r, const char *dir, size_t len,
                       const struct limits *limits, struct err *err)
{
    int rc = 0;
    bool waited = false;

    mutex_lock(&r->base.lock);
    while (rc == 0 && is_coming(r, dir, len)) {
        waited = true;
        rc = remote_wait(r, limits, err);
    }
    mutex_unlock(&r->base.lock);
    return rc < 0 ? rc : waited;
}

/* The length of the path that both begin with, in whole names. */
static size_t common_len(const char *a, const char *b)
{
    size_t len = 0;

    for (size_t i = 0;; i++) {
        if ((!a[i] || a[i] == '/') && (!b[i] || b[i] == '/')) {
            len = i;
        }
        if (!a[i] || a[i] != b[i]) {
            return len;
        }
    }
}

/* Decides whether to ask for a whole tree, by the directory that was asked for
 * before; the path becomes that of the tree. */
static bool is_walk(struct remote *r, char *path) REQUIRES(r->base.lock)
{
    const struct remote_walk *last = &r->walk;
    int64_t now = clock_ms();
    size_t len = common_len(path, last->path);
    bool walk = r->files->tree && now - last->at_ms < WALK_MS &&
                strcmp(path, last->path) != 0;

    if (walk && now < last->wide_until_ms) {
        const size_t wide_len = strlen(last->wide);

        /* The tree that was too large is not in this one. */
        walk = !(wide_len >= len && strncmp(last->wide, path, len) == 0 &&
                 (!len || wide_len == len || last->wide[len] == '/'));
    }
    if (walk) {
        path[len] = '\0';
    }
    r->walk.at_ms = now;
    memcpy(r->walk.path, path, strlen(path) + 1);
    return walk;
}

/* Has the directory alone told, as its tree cannot be. */
static void load_one(struct remote *r, struct remote_load *load,
                     const char *dir, char *path, bool wide)
{
    mutex_lock(&r->base.lock);
    if (wide) {
        r->walk.wide_until_ms = clock_ms() + WIDE_MS;
        memcpy(r->walk.wide, path, strlen(path) + 1);
    }
    load->tree = false;
    memcpy(path, dir, strlen(dir) + 1);
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

static void end_load(struct remote *r, struct remote_load *load)
{
    mutex_lock(&r->base.lock);
    list_remove(&load->link);
    cond_broadcast(&r->turn);
    mutex_unlock(&r->base.lock);
}

/* ---- Telling ---- */

static bool is_name(const char *name)
{
    size_t len = strlen(name);

    return len && len <= NAME_MAX && !strchr(name, '/') &&
           strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* A name that cannot be one is left out. */
static bool is_entry(const struct provider_entry *entry)
{
    bool good = is_name(entry->name);

    if (!good) {
        log_warning("an engine's listing holds the name '%.255s'", entry->name);
    }
    return good;
}

/* Who takes what an engine tells. */
struct teller {
    struct remote *r;
    struct remote_moment moment;
    const char *path; /* That was asked for. */
    provider_entry_fn *fn;
    void *arg;
    struct remote_load *load; /* Or NULL. */
    size_t told;
    char dir[REMOTE_PATH_SIZE]; /* Of a tree: the last one that was told, */
    bool known;                 /* and whether it was told as a directory. */
    char **dirs;                /* All that were. */
    size_t n, room;
};

/* Lets go who waits for a directory that turns out to be large. */
static void count_told(struct teller *teller)
{
    if (teller->load && ++teller->told == REMOTE_LISTED_MOST) {
        mutex_lock(&teller->r->base.lock);
        teller->load->large = true;
        cond_broadcast(&teller->r->turn);
        mutex_unlock(&teller->r->base.lock);
    }
}

static int take_entry(void *arg, const struct provider_entry *entry)
{
    struct teller *teller = arg;

    if (!is_entry(entry)) {
        return 0;
    }
    count_told(teller);
    remote_cache_add(teller->r->cache, &teller->moment, teller->path, entry);
    return teller->fn ? teller->fn(teller->arg, entry) : 0;
}

static int list(struct teller *teller, const struct limits *limits,
                struct err *err)
{
    struct remote *r = teller->r;
    bool keep;
    int rc = remote_begin(r, limits, err);

    if (rc < 0) {
        return rc;
    }
    teller->moment = remote_cache_moment(r->cache);
    keep = remote_cache_begin(r->cache, &teller->moment, teller->path);
    rc = r->files->list(r->provider, &r->sandbox, teller->path, limits,
                        take_entry, teller, err);
    rc = (int)remote_end(r, rc, err);
    if (rc == 0 && keep) {
        remote_cache_whole(r->cache, &teller->moment, teller->path);
    }
    return rc;
}

/* Notes a directory of a tree, whose entries follow. */
static int add_dir(struct teller *teller, const char *path)
{
    void *wide = array_grow((void *)teller->dirs, teller->n, &teller->room,
                            sizeof(*teller->dirs));

    if (!wide) {
        return -ENOMEM;
    }
    teller->dirs = wide;
    teller->dirs[teller->n] = strdup(path);
    if (!teller->dirs[teller->n]) {
        return -ENOMEM;
    }
    teller->n++;
    (void)remote_cache_begin(teller->r->cache, &teller->moment, path);
    return 0;
}

/* Whether a directory was told as one, in this tree. */
static bool was_told(const struct teller *teller, const char *dir)
{
    size_t i = teller->n;

    while (i && strcmp(teller->dirs[i - 1], dir) != 0) {
        i--; /* It was told not long ago. */
    }
    return i > 0;
}

/* Whether the entries of a directory are wanted: an engine's word alone does
 * not make it one. Nor does what is kept tell, which others change. */
static bool is_wanted(struct teller *teller, const char *dir)
{
    if (strcmp(dir, teller->dir) != 0) {
        if (strlen(dir) >= sizeof(teller->dir)) {
            return false;
        }
        memcpy(teller->dir, dir, strlen(dir) + 1);
        teller->known = strcmp(dir, teller->path) == 0 || was_told(teller, dir);
    }
    return teller->known;
}

static int take_from_tree(void *arg, const char *dir,
                          const struct provider_entry *entry)
{
    struct teller *teller = arg;
    char path[REMOTE_PATH_SIZE];
    int n;

    if (!is_wanted(teller, dir) || !is_entry(entry)) {
        return 0;
    }
    remote_cache_add(teller->r->cache, &teller->moment, dir, entry);
    if (!S_ISDIR(entry->attr.st_mode)) {
        return 0;
    }
    n = snprintf(path, sizeof(path), "%s%s%s", dir, dir[0] ? "/" : "",
                 entry->name);
    return n < (int)sizeof(path) ? add_dir(teller, path) : 0;
}

static void end_tree(struct teller *teller, bool whole)
{
    for (size_t i = 0; i < teller->n; i++) {
        if (whole) {
            remote_cache_whole(teller->r->cache, &teller->moment,
                               teller->dirs[i]);
        }
        free(teller->dirs[i]);
    }
    free(teller->dirs);
}

/* Has a whole tree told; -E2BIG where it is too large. */
static int list_tree(struct remote *r, const char *path,
                     const struct limits *limits, struct err *err)
{
    struct teller *teller = calloc(1, sizeof(*teller));
    int rc = teller ? remote_begin(r, limits, err) : -ENOMEM;

    if (rc < 0) {
        free(teller);
        return rc;
    }
    teller->r = r;
    teller->path = path;
    teller->dir[0] = '/'; /* No path. */
    teller->moment = remote_cache_moment(r->cache);
    rc = add_dir(teller, path);
    if (rc == 0) {
        rc = r->files->tree(r->provider, &r->sandbox, path, TREE_MOST, limits,
                            take_from_tree, teller, err);
    }
    rc = (int)remote_end(r, rc, err);
    end_tree(teller, rc == 0);
    free(teller);
    return rc;
}

/* ---- Loading ---- */

/* Has a directory told, or the tree that it lies in. fn may be NULL, and is
 * not called where the tree was told: look again then. */
static int load(struct remote *r, const char *dir, const struct limits *limits,
                provider_entry_fn *fn, void *arg, struct err *err)
{
    char path[REMOTE_PATH_SIZE];
    struct remote_load load = {.path = path};
    struct err unused = ERR_INIT;
    int rc;

    memcpy(path, dir, strlen(dir) + 1);
    mutex_lock(&r->base.lock);
    load.tree = is_walk(r, path);
    list_add(&r->loads, &load.link);
    mutex_unlock(&r->base.lock);
    if (load.tree) {
        rc = list_tree(r, path, limits, &unused);
        if (rc == 0) {
            end_load(r, &load);
            return 1;
        }
        load_one(r, &load, dir, path, rc == -E2BIG);
    }
    rc = list(
        &(struct teller){
            .r = r, .path = path, .fn = fn, .arg = arg, .load = &load},
        limits, err);
    end_load(r, &load);
    return rc;
}

int remote_list(struct remote *r, const char *dir, const struct limits *limits,
                provider_entry_fn *fn, void *arg, struct err *err)
{
    int rc = remote_cache_list(r->cache, dir, fn, arg);

    if (rc == 0) {
        rc = wait_for_it(r, dir, strlen(dir), limits, err);
        rc = rc > 0 ? remote_cache_list(r->cache, dir, fn, arg) : rc;
    }
    if (rc == 0) {
        rc = load(r, dir, limits, fn, arg, err);
        if (rc <= 0) {
            return rc;
        }
        rc = remote_cache_list(r->cache, dir, fn, arg);
    }
    if (rc == 0) { /* The tree was told, but could not be kept. */
        rc = list(&(struct teller){.r = r, .path = dir, .fn = fn, .arg = arg},
                  limits, err);
    }
    if (rc < 0 && !err->code) {
        return err_set(err, -rc, "the listing was ended");
    }
    return rc < 0 ? rc : 0;
}

/* The entries of what is a directory follow. */
static void begin_look(struct teller *teller)
{
    if (!teller->known) {
        teller->known = true;
        (void)remote_cache_begin(teller->r->cache, &teller->moment,
                                 teller->path);
    }
}

static int take_looked(void *arg, const struct provider_entry *entry)
{
    begin_look(arg);
    return take_entry(arg, entry);
}

/* Attributes of a file of which nothing was known; whoever wants to know of a
 * directory will often have it listed, too. */
static int look(struct remote *r, const char *path,
                const struct remote_moment *moment, const struct limits *limits,
                struct stat *out, struct err *err)
{
    struct teller teller = {.r = r, .moment = *moment, .path = path};
    struct provider_look what = {
        .fn = take_looked, .arg = &teller, .most = LOOK_MOST};
    int rc = r->files->look(r->provider, &r->sandbox, path, limits, &what, err);

    if (rc < 0) {
        return rc;
    }
    *out = what.attr;
    if (what.whole && S_ISDIR(what.attr.st_mode)) {
        begin_look(&teller);
        remote_cache_whole(r->cache, moment, path);
        mutex_lock(&r->base.lock);
        r->walk.at_ms = clock_ms();
        memcpy(r->walk.path, path, strlen(path) + 1);
        mutex_unlock(&r->base.lock);
    }
    return 0;
}

static int ask(struct remote *r, const char *path, const struct limits *limits,
               struct stat *out, struct err *err)
{
    struct remote_moment moment;
    struct stat attr = {.st_size = 0};
    bool looks =
        r->files->look && remote_cache_looks(r->cache, path, LOOK_MOST);
    int rc = remote_begin(r, limits, err);

    if (rc < 0) {
        return rc;
    }
    moment = remote_cache_moment(r->cache);
    rc = looks ? look(r, path, &moment, limits, &attr, err)
               : r->files->stat(r->provider, &r->sandbox, path, limits, &attr,
                                err);
    rc = (int)remote_end(r, rc, err);
    if (rc == 0) {
        remote_cache_learn(r->cache, &moment, path, &attr);
        *out = attr;
    } else if (rc == -ENOENT) {
        remote_cache_learn(r->cache, &moment, path, NULL);
    }
    return rc;
}

/* Lists the directory of a path where more than one of its names is asked for;
 * what goes wrong is for who asks for the one name. */
static int prepare(struct remote *r, const char *path,
                   const struct limits *limits, struct err *err)
{
    char dir[REMOTE_PATH_SIZE];
    struct err unused = ERR_INIT;
    size_t len = dir_len(path);
    int rc = wait_for_it(r, path, len, limits, err);

    if (rc == 0 && path[0]) {
        memcpy(dir, path, len);
        dir[len] = '\0';
        if (remote_cache_miss(r->cache, dir)) {
            (void)!load(r, dir, limits, NULL, NULL, &unused);
        }
    }
    return rc < 0 ? rc : 0;
}

int remote_attr(struct remote *r, const char *path, const struct limits *limits,
                struct stat *out, struct err *err)
{
    enum remote_known known = remote_cache_find(r->cache, path, out);
    int rc = 0;

    if (known == REMOTE_UNKNOWN) {
        rc = prepare(r, path, limits, err);
        known = remote_cache_find(r->cache, path, out);
    }
    if (rc < 0 || known == REMOTE_THERE) {
        return rc;
    }
    return known == REMOTE_ABSENT ? err_set(err, ENOENT, "no such file")
                                  : ask(r, path, limits, out, err);
}
