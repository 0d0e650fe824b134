/*
 * The check of a session's provider_config by its provider's table of keys:
 * types, ranges, and who may say what.
 *
 * Keys that reach this machine or the engine's account are taken from the
 * operator alone, unless the value is the one that is in effect already.
 */
#ifndef SESSIONFS_CONFIG_CHECK_H
#define SESSIONFS_CONFIG_CHECK_H

#include "core/config.h"
#include "core/config_key.h"

struct buf;

/* The key of the directory that a workspace starts from: of a provider that
 * can do so. Users may narrow it. */
#define CONFIG_BASE "base"

/* Directories that paths in configs are compared with: absolute, without
 * links. */
struct config_places {
    const char *state; /* No path may overlap it, */
    const char *mount; /* nor lie in this one; NULL: nothing is mounted. */
    const char *base;  /* Whoever may not set `base` may name a directory
                        * below this one; NULL: none. */
};

struct config_rules {
    const struct config_key *keys; /* The provider's table; NULL: no keys. */
    bool trusted;                  /* The operator has said it. */
    const char *current; /* The provider_config in effect; NULL: none. */
    const struct config_places *places;
};

/**
 * Checks a config's provider_config, and makes it the effective one: each key
 * that has a default is in it, and paths are without links.
 *
 * @param config changed on success
 * @param rules  borrowed
 * @param err    filled on failure; the key is named
 * @return 0, -EINVAL for an unknown key or a wrong value, -EPERM for what the
 *         operator alone may say, -ENOMEM, or what the file system said of a
 *         path
 */
MUST_USE int config_check(struct config *config,
                          const struct config_rules *rules, struct err *err);

/**
 * Checks a directory that a workspace shall start from, as that of a config.
 *
 * @param places what it may not overlap
 * @param path   absolute
 * @param err    filled on failure
 * @return 0, -EINVAL, or what the file system said of the path
 */
MUST_USE int config_check_place(const struct config_places *places,
                                const char *path, struct err *err);

/**
 * Looks whether what an effective config names is on this machine now:
 * directories and programs.
 *
 * @param config whose provider_config
 * @param keys   the provider's table; NULL: no keys
 * @param err    filled on failure; the key is named
 * @return 0, -ENOENT, -ENOTDIR, -EACCES, or what else the file system said
 */
MUST_USE int config_there(const struct config *config,
                          const struct config_key *keys, struct err *err);

/**
 * Gives each key that has a default and is not set its default. Nothing is
 * checked: for what was recorded by another version.
 *
 * @param config changed on success
 * @param keys   the provider's table; NULL: no keys
 * @param err    filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int config_fill(struct config *config, const struct config_key *keys,
                         struct err *err);

/**
 * Writes what a key's value has to be, as "an integer from 1 to 9 bytes".
 *
 * @param key a row
 * @param out appended to
 * @return 0, -EFBIG or -ENOMEM
 */
MUST_USE int config_key_says(const struct config_key *key, struct buf *out);

#endif
