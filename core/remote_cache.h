/*
 * What is known of names and attributes of a sandbox's files, by path, for a
 * bounded time and in bounded memory. Thread-safe; calls nobody.
 *
 * Nothing holds longer than its time, a listing from its end on, and
 * remote_cache_changed() ends all at once. An answer of the engine is kept only
 * if nothing of its directory was changed through us since it was asked for: it
 * may be older than the change.
 *
 * A path is as in `struct provider_files`. The workspace itself is the name ""
 * in the directory "".
 */
#ifndef SESSIONFS_REMOTE_CACHE_H
#define SESSIONFS_REMOTE_CACHE_H

#include "core/provider_files.h"

enum {
    /* Names of a directory that is listed where only some are wanted, or once
     * more because time has passed, and that is kept as a whole. */
    REMOTE_LISTED_MOST = 20000
};

struct remote_cache;

/* When something was asked for. */
struct remote_moment {
    uint64_t stamp;
    uint64_t generation;
    uint64_t number; /* No two have the same. */
    int64_t at_ms;
};

enum remote_known {
    REMOTE_UNKNOWN,
    REMOTE_THERE,
    REMOTE_ABSENT,
};

/**
 * @param keep_ms how long an answer of the engine holds
 * @return an empty cache, or NULL without memory
 */
struct remote_cache *remote_cache_new(int64_t keep_ms);
/** @param cache freed; NULL is fine */
void remote_cache_free(struct remote_cache *cache);

/** @param cache a cache @return now, to be taken before the engine is asked */
struct remote_moment remote_cache_moment(struct remote_cache *cache);

/** @param cache all that it holds is forgotten: files may have changed */
void remote_cache_changed(struct remote_cache *cache);

/**
 * Looks a name up.
 *
 * @param cache a cache
 * @param path  of the file
 * @param attr  as the engine told them, when it is there
 * @return what is known
 */
enum remote_known remote_cache_find(struct remote_cache *cache,
                                    const char *path, struct stat *attr);

/**
 * Whether to ask for a directory's entries with its attributes: nothing is
 * known of the path, or it was listed before.
 *
 * @param cache a cache
 * @param path  of the file
 * @param most  entries that it may have
 * @return whether to
 */
bool remote_cache_looks(struct remote_cache *cache, const char *path,
                        size_t most);

/**
 * Takes what the engine said of one file.
 *
 * @param cache  a cache
 * @param moment when it was asked
 * @param path   of the file
 * @param attr   NULL: there is no such file
 */
void remote_cache_learn(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *path,
                        const struct stat *attr);

/**
 * Takes what a change through us has done to a name. Also its directory's
 * attributes are forgotten.
 *
 * @param cache a cache
 * @param path  of the file
 * @param attr  as it is now; NULL: it is gone
 */
void remote_cache_set(struct remote_cache *cache, const char *path,
                      const struct stat *attr);

/**
 * Forgets a name and what lies below it, after a change through us.
 *
 * @param cache a cache
 * @param path  of the file
 */
void remote_cache_forget(struct remote_cache *cache, const char *path);

/**
 * Notes that a directory that was just made is empty.
 *
 * @param cache a cache
 * @param path  of the directory
 */
void remote_cache_empty(struct remote_cache *cache, const char *path);

/**
 * Begins a new listing of a directory; its entries follow by
 * remote_cache_add(), then remote_cache_whole() where they are all. Of two that
 * come at one time the one that began last is kept.
 *
 * @param cache  a cache
 * @param moment when the engine was asked
 * @param dir    path of the directory
 * @return false where the answer is too old to be kept
 */
bool remote_cache_begin(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *dir);
/** @param cache a cache @param moment as given @param dir as given
 *  @param entry of the listing */
void remote_cache_add(struct remote_cache *cache,
                      const struct remote_moment *moment, const char *dir,
                      const struct provider_entry *entry);
/** @param cache a cache @param moment as given @param dir as given */
void remote_cache_whole(struct remote_cache *cache,
                        const struct remote_moment *moment, const char *dir);

/**
 * Tells a directory's entries; fn must not call the cache.
 *
 * @param cache a cache
 * @param dir   path of the directory
 * @param fn    called for each entry, under the cache's lock
 * @param arg   given to fn
 * @return 1, 0 when its entries are not all known, or what fn said
 */
int remote_cache_list(struct remote_cache *cache, const char *dir,
                      provider_entry_fn *fn, void *arg);

/**
 * Counts a name that was asked for in vain.
 *
 * @param cache a cache
 * @param dir   path of its directory
 * @return whether to list the directory: it was not the first one
 */
bool remote_cache_miss(struct remote_cache *cache, const char *dir);

/** @param cache a cache @return how many names it holds */
size_t remote_cache_count(struct remote_cache *cache);

#endif
