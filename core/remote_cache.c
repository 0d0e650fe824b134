/* Names and attributes of files. See remote_cache.h. */
#include "core/remote_cache.h"

#include "core/clock.h"
#include "core/list.h"
#include "core/mutex.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BUCKETS = 16384, /* A power of two. */
    /* Names of one tree, about 250 bytes each; find reads 100,000 at first. */
    NAMES_MOST = 131072,
};

/* Names of all trees of this process: nobody's grows beyond. */
static atomic_size_t all_names;
static const size_t all_names_most = (size_t)2 * NAMES_MOST;

struct known_dir;

struct known {
    struct known *next; /* Of a bucket. */
    struct list link;   /* dir->names */
    struct known_dir *dir;
    struct stat attr;
    int64_t until_ms; /* attr hold so long. */
    enum remote_known is;
    char name[];
};

struct known_dir {
    struct known_dir *next; /* Of a bucket. */
    struct list link;       /* cache->dirs, the last used one last. */
    struct list names;
    size_t n;
    int64_t whole_until_ms; /* Until then what is not among names is not
                             * there. */
    uint64_t changed;       /* The stamp of the last change through us. */
    uint64_t telling;       /* The number of the last listing that began. */
    bool was_whole;         /* Somebody has listed it. */
    unsigned misses;        /* Since then, or since it is known. */
    char path[];
};

struct remote_cache {
    struct mutex lock; /* Of all below. */
    int64_t keep_ms;
    uint64_t generation;
    uint64_t stamp;
    uint64_t moments;
    uint64_t floor; /* The newest change of a directory that was dropped. */
    size_t n;
    struct list dirs;
    struct known *names[BUCKETS];
    struct known_dir *by_path[BUCKETS / 4];
};

struct remote_cache *remote_cache_new(int64_t keep_ms)
{
    struct remote_cache *cache = calloc(1, sizeof(*cache));

    if (cache) {
        mutex_init(&cache->lock);
        list_init(&cache->dirs);
        cache->keep_ms = keep_ms;
    }
    return cache;
}

/* FNV-1a */
static uint64_t hash(uint64_t from, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        from = (from ^ (unsigned char)text[i]) * 0x100000001b3;
    }
    return from ^ from >> 29;
}

static struct known **name_at(struct remote_cache *cache,
                              const struct known_dir *dir, const char *name)
{
    return &cache->names[hash((uintptr_t)dir ^ 0xcbf29ce484222325, name,
                              strlen(name)) &
                         (BUCKETS - 1)];
}

static struct known_dir **dir_at(struct remote_cache *cache, const char *path,
                                 size_t len)
{
    return &cache->by_path[hash(0xcbf29ce484222325, path, len) &
                           (BUCKETS / 4 - 1)];
}

static void drop_name(struct remote_cache *cache, struct known *known)
{
    struct known **at = name_at(cache, known->dir, known->name);

    while (*at != known) {
        at = &(*at)->next;
    }
    *at = known->next;
    list_remove(&known->link);
    known->dir->n--;
    cache->n--;
    (void)atomic_fetch_sub(&all_names, 1);
    free(known);
}

static void drop_names(struct remote_cache *cache, struct known_dir *dir)
{
    list_each_safe(node, &dir->names)
    {
        drop_name(cache, container_of(node, struct known, link));
    }
    dir->whole_until_ms = 0;
}

static void drop_dir(struct remote_cache *cache, struct known_dir *dir)
{
    struct known_dir **at = dir_at(cache, dir->path, strlen(dir->path));

    drop_names(cache, dir);
    while (*at != dir) {
        at = &(*at)->next;
    }
    *at = dir->next;
    list_remove(&dir->link);
    if (dir->changed > cache->floor) {
        cache->floor = dir->changed;
    }
    free(dir);
}

static void drop_all(struct remote_cache *cache)
{
    list_each_safe(node, &cache->dirs)
    {
        drop_dir(cache, container_of(node, struct known_dir, link));
    }
}

void remote_cache_free(struct remote_cache *cache)
{
    if (cache) {
        drop_all(cache);
        mutex_done(&cache->lock);
        free(cache);
    }
}

struct remote_moment remote_cache_moment(struct remote_cache *cache)
{
    struct remote_moment moment = {.at_ms = clock_ms()};

    mutex_lock(&cache->lock);
    moment.stamp = cache->stamp;
    moment.generation = cache->generation;
    moment.number = ++cache->moments;
    mutex_unlock(&cache->lock);
    return moment;
}

void remote_cache_changed(struct remote_cache *cache)
{
    mutex_lock(&cache->lock);
    cache->generation++;
    drop_all(cache);
    mutex_unlock(&cache->lock);
}

/* A path's directory and name; the workspace itself is in itself. */
struct split {
    const char *dir;
    size_t dir_len;
    const char *name;
};

static struct split split(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (struct split){.dir = path,
                          .dir_len = slash ? (size_t)(slash - path) : 0,
                          .name = slash ? slash + 1 : path};
}

static struct known_dir *find_dir(struct remote_cache *cache, const char *path,
                                  size_t len)
{
    struct known_dir *dir = *dir_at(cache, path, len);

    while (dir &&
           (strncmp(dir->path, path, len) != 0 || dir->path[len] != '\0')) {
        dir = dir->next;
    }
    if (dir) { /* It was used just now. */
        list_remove(&dir->link);
        list_add(&cache->dirs, &dir->link);
    }
    return dir;
}

static struct known_dir *make_dir(struct remote_cache *cache, const char *path,
                                  size_t len)
{
    struct known_dir *dir = find_dir(cache, path, len);
    struct known_dir **at = dir_at(cache, path, len);

    if (dir) {
        return dir;
    }
    dir = calloc(1, sizeof(*dir) + len + 1);
    if (dir) {
        memcpy(dir->path, path, len);
        list_init(&dir->names);
        list_add(&cache->dirs, &dir->link);
        dir->changed = cache->floor;
        dir->next = *at;
        *at = dir;
    }
    return dir;
}

static struct known *find_name(struct remote_cache *cache,
                               const struct known_dir *dir, const char *name)
{
    struct known *known = *name_at(cache, dir, name);

    while (known && (known->dir != dir || strcmp(known->name, name) != 0)) {
        known = known->next;
    }
    return known;
}

/* Makes room for one more name; of a directory that takes all the room the
 * names go that came first. */
static void make_room(struct remote_cache *cache, struct known_dir *keep)
{
    while (cache->n >= NAMES_MOST ||
           (cache->n && atomic_load(&all_names) >= all_names_most)) {
        struct known_dir *oldest =
            container_of(cache->dirs.next, struct known_dir, link);

        if (oldest != keep) {
            drop_dir(cache, oldest);
            continue;
        }
        drop_name(cache, container_of(keep->names.next, struct known, link));
        keep->whole_until_ms = 0;
        keep->telling = 0;
    }
}

static struct known *make_name(struct remote_cache *cache,
                               struct known_dir *dir, const char *name)
{
    struct known *known = find_name(cache, dir, name);
    struct known **at = name_at(cache, dir, name);
    size_t len = strlen(name);

    if (known) {
        return known;
    }
    make_room(cache, dir);
    known = calloc(1, sizeof(*known) + len + 1);
    if (known) {
        memcpy(known->name, name, len);
        known->dir = dir;
        known->next = *at;
        *at = known;
        list_add(&dir->names, &known->link);
        dir->n++;
        cache->n++;
        (void)atomic_fetch_add(&all_names, 1);
    }
    return known;
}

/* Where there is no memory for a name nothing is known of its directory. */
static void put(struct remote_cache *cache, struct known_dir *dir,
                const char *name, const struct stat *attr, int64_t until_ms)
{
    struct known *known = make_name(cache, dir, name);

    if (!known) {
        dir->whole_until_ms = 0;
        return;
    }
    known->is = attr ? REMOTE_THERE : REMOTE_ABSENT;
    known->until_ms = until_ms;
    if (attr) {
        known->attr = *attr;
    }
}

enum remote_known remote_cache_find(struct remote_cache *cache,
                                    const char *path, struct stat *attr)
{
    const struct split at = split(path);
    enum remote_known found = REMOTE_UNKNOWN;
    int64_t now = clock_ms();
    const struct known_dir *dir;
    const struct known *known;

    mutex_lock(&cache->lock);
    dir = find_dir(cache, at.dir, at.dir_len);
    known = dir ? find_name(cache, dir, at.name) : NULL;
    /* What came early in a long listing holds as long as its end. */
    if (known && (known->until_ms > now || (known->until_ms && at.name[0] &&
                                            dir->whole_until_ms > now))) {
        found = known->is;
        *attr = known->attr;
    } else if (!known && dir && dir->whole_until_ms > now && at.name[0]) {
        found = REMOTE_ABSENT;
    }
    mutex_unlock(&cache->lock);
    return found;
}

bool remote_cache_looks(struct remote_cache *cache, const char *path,
                        size_t most)
{
    const struct split at = split(path);
    const struct known_dir *dir;
    bool looks;

    mutex_lock(&cache->lock);
    dir = find_dir(cache, at.dir, at.dir_len);
    looks = !dir || !find_name(cache, dir, at.name);
    if (!looks) {
        dir = find_dir(cache, path, strlen(path));
        looks = dir && dir->was_whole && dir->n <= most;
    }
    mutex_unlock(&cache->lock);
    return looks;
}

/* Whether an answer that was asked for then is newer than all changes. */
static bool holds(const struct remote_cache *cache, const struct known_dir *dir,
                  const struct remote_moment *moment)
{
    return dir && moment->generation == cache->generation &&
           moment->stamp >= dir->changed;
}

void remote_cache_learn(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *path,
                        const struct stat *attr)
{
    const struct split at = split(path);
    struct known_dir *dir;

    mutex_lock(&cache->lock);
    dir = make_dir(cache, at.dir, at.dir_len);
    if (holds(cache, dir, moment)) {
        put(cache, dir, at.name, attr, moment->at_ms + cache->keep_ms);
    }
    mutex_unlock(&cache->lock);
}

/* A directory's attributes are no longer as they were told. Where files alone
 * came or went it is the time, and that is now, nearly. */
static void age(struct remote_cache *cache, const char *path, bool file)
{
    const struct split at = split(path);
    const struct known_dir *dir = find_dir(cache, at.dir, at.dir_len);
    struct known *known = dir ? find_name(cache, dir, at.name) : NULL;

    if (known && file) {
        (void)clock_gettime(CLOCK_REALTIME, &known->attr.st_mtim);
        known->attr.st_ctim = known->attr.st_mtim;
    } else if (known) {
        known->until_ms = 0;
    }
}

/* Notes a change of a name; NULL without memory. */
static struct known_dir *change(struct remote_cache *cache,
                                const struct split *at, bool file)
{
    struct known_dir *dir = make_dir(cache, at->dir, at->dir_len);
    const struct known *known = dir ? find_name(cache, dir, at->name) : NULL;

    file = file || (known && known->is == REMOTE_THERE &&
                    !S_ISDIR(known->attr.st_mode));
    cache->stamp++;
    if (dir) {
        dir->changed = cache->stamp;
        age(cache, dir->path, file);
    } else {
        cache->floor = cache->stamp;
    }
    return dir;
}

void remote_cache_set(struct remote_cache *cache, const char *path,
                      const struct stat *attr)
{
    const struct split at = split(path);
    struct known_dir *dir;
    const struct known *known;
    bool file = attr && !S_ISDIR(attr->st_mode);

    mutex_lock(&cache->lock);
    dir = find_dir(cache, at.dir, at.dir_len);
    known = dir ? find_name(cache, dir, at.name) : NULL;
    /* What was forgotten just now has made its directory older already. */
    file = file || (!attr && known && known->is == REMOTE_UNKNOWN);
    dir = change(cache, &at, file);
    if (dir) {
        put(cache, dir, at.name, attr, clock_ms() + cache->keep_ms);
    }
    mutex_unlock(&cache->lock);
}

static void forget_below(struct remote_cache *cache, const char *path)
{
    size_t len = strlen(path);

    list_each_safe(node, &cache->dirs)
    {
        struct known_dir *dir = container_of(node, struct known_dir, link);

        if (strncmp(dir->path, path, len) == 0 &&
            (dir->path[len] == '\0' || dir->path[len] == '/' || !len)) {
            drop_names(cache, dir);
            dir->changed = cache->stamp;
        }
    }
}

void remote_cache_forget(struct remote_cache *cache, const char *path)
{
    const struct split at = split(path);
    struct known_dir *dir;
    struct known *known;

    mutex_lock(&cache->lock);
    dir = change(cache, &at, false);
    forget_below(cache, path);
    if (dir) {
        put(cache, dir, at.name, NULL, 0);
        known = find_name(cache, dir, at.name);
        if (known) {
            known->is = REMOTE_UNKNOWN;
        }
    }
    mutex_unlock(&cache->lock);
}

void remote_cache_empty(struct remote_cache *cache, const char *path)
{
    struct known_dir *dir;

    mutex_lock(&cache->lock);
    dir = make_dir(cache, path, strlen(path));
    if (dir) {
        drop_names(cache, dir);
        dir->changed = cache->stamp;
        dir->was_whole = true;
        dir->whole_until_ms = clock_ms() + cache->keep_ms;
    }
    mutex_unlock(&cache->lock);
}

bool remote_cache_begin(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *path)
{
    struct known_dir *dir;
    bool keep;

    mutex_lock(&cache->lock);
    dir = make_dir(cache, path, strlen(path));
    keep = holds(cache, dir, moment);
    if (keep) {
        list_each_safe(node, &dir->names)
        {
            struct known *known = container_of(node, struct known, link);

            if (known->name[0]) { /* The workspace is in no listing. */
                drop_name(cache, known);
            }
        }
        dir->misses = 0;
        dir->whole_until_ms = 0;
        dir->telling = moment->number;
    }
    mutex_unlock(&cache->lock);
    return keep;
}

/* Whether a listing is still the one that is kept. */
static bool is_telling(const struct remote_cache *cache,
                       const struct known_dir *dir,
                       const struct remote_moment *moment)
{
    return holds(cache, dir, moment) && dir->telling == moment->number;
}

void remote_cache_add(struct remote_cache *cache,
                      const struct remote_moment *moment, const char *path,
                      const struct provider_entry *entry)
{
    struct known_dir *dir;

    mutex_lock(&cache->lock);
    dir = find_dir(cache, path, strlen(path));
    if (is_telling(cache, dir, moment)) {
        put(cache, dir, entry->name, &entry->attr, clock_ms() + cache->keep_ms);
        if (dir->n > REMOTE_LISTED_MOST) { /* What is read of it is kept. */
            dir->telling = 0;
        }
    }
    mutex_unlock(&cache->lock);
}

void remote_cache_whole(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *path)
{
    struct known_dir *dir;

    mutex_lock(&cache->lock);
    dir = find_dir(cache, path, strlen(path));
    if (is_telling(cache, dir, moment)) {
        dir->was_whole = true;
        dir->whole_until_ms = clock_ms() + cache->keep_ms;
    }
    mutex_unlock(&cache->lock);
}

/* Each name of a directory that is whole; 0 where one may be there or not. */
static int tell(const struct known_dir *dir, provider_entry_fn *fn, void *arg)
{
    list_each(node, &dir->names)
    {
        const struct known *known = container_of(node, struct known, link);

        if (known->is == REMOTE_UNKNOWN) {
            return 0;
        }
    }
    list_each(node, &dir->names)
    {
        const struct known *known = container_of(node, struct known, link);
        const struct provider_entry entry = {.name = known->name,
                                             .attr = known->attr};
        int rc = 0;

        if (known->is == REMOTE_THERE && known->name[0]) {
            rc = fn(arg, &entry);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 1;
}

int remote_cache_list(struct remote_cache *cache, const char *path,
                      provider_entry_fn *fn, void *arg)
{
    const struct known_dir *dir;
    int rc = 0;

    mutex_lock(&cache->lock);
    dir = find_dir(cache, path, strlen(path));
    if (dir && dir->whole_until_ms > clock_ms()) {
        rc = tell(dir, fn, arg);
    }
    mutex_unlock(&cache->lock);
    return rc;
}

bool remote_cache_miss(struct remote_cache *cache, const char *path)
{
    struct known_dir *dir;
    bool list = false;

    mutex_lock(&cache->lock);
    dir = make_dir(cache, path, strlen(path));
    if (dir) {
        list = (dir->was_whole || dir->misses) && dir->n < REMOTE_LISTED_MOST;
        dir->misses++;
    }
    mutex_unlock(&cache->lock);
    return list;
}

size_t remote_cache_count(struct remote_cache *cache)
{
    size_t n;

    mutex_lock(&cache->lock);
    n = cache->n;
    mutex_unlock(&cache->lock);
    return n;
}
