/*
 * The config of a session: which provider, what the provider is told, and
 * how the session behaves. A JSON document; keys that are not known here are
 * let pass, those of provider_config are checked by the provider's table.
 */
#ifndef SESSIONFS_CONFIG_H
#define SESSIONFS_CONFIG_H

#include "core/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct js;

enum {
    CONFIG_TEXT_MAX = 256 * 1024 /* Bytes of a config that is read. */
};

/* What wakes a paused sandbox whose engine cannot read files of one. */
enum config_wake {
    CONFIG_WAKE_ACCESS, /* Also file data that is read or written, */
    CONFIG_WAKE_EXEC,   /* or commands and `status` alone. */
};

/* Whether what is written through the mount makes checkpoints. */
enum config_writes {
    CONFIG_WRITES_GATHERED, /* At times, for all that was written, */
    CONFIG_WRITES_NEVER,    /* or only with a command's. */
};

struct config {
    char *provider;
    char *provider_config; /* A JSON object. */
    bool auto_start;
    bool idle_pause_enabled;
    int64_t idle_pause_after_seconds;
    enum config_wake wake;
    enum config_writes checkpoint_writes;
    int64_t checkpoints_keep;         /* Of those without a name; 0: all. */
    int64_t checkpoints_keep_seconds; /* Since they were taken; 0: for ever. */
    int64_t checkpoints_keep_bytes;   /* That all have cost; 0: any. */
    int64_t exec_timeout_ms;          /* Of commands that name none; 0: none. */
    int64_t create_timeout_ms;
    int64_t call_timeout_ms; /* Of every other call of the engine. */
    char **init_commands;    /* init_count of them. */
    size_t init_count;
};

/**
 * Makes the built-in config, which is that of mkdir without a profile: it
 * does not start by itself.
 *
 * @param provider its provider
 * @param out      filled on success; config_done() frees it
 * @param err      filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int config_default(const char *provider, struct config *out,
                            struct err *err);

/**
 * Parses the JSON of a config, as it comes from outside.
 *
 * @param text borrowed
 * @param size its bytes
 * @param out  the value, on success; js_free() frees it
 * @param err  filled on failure
 * @return 0, -EINVAL, -EFBIG over CONFIG_TEXT_MAX, -ENOMEM
 */
MUST_USE int config_json(const char *text, size_t size, struct js **out,
                         struct err *err);

/** @param js a parsed config @return whether it is null or `{}`, which says
 *  that nothing is configured: the default applies */
bool config_is_none(const struct js *js);

/**
 * Reads a config. What it does not say has its default.
 *
 * @param js  a parsed config
 * @param out filled on success; config_done() frees it
 * @param err filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int config_read(const struct js *js, struct config *out,
                         struct err *err);

/**
 * Reads a config from its text, as config_read().
 *
 * @param text JSON
 * @param out  filled on success; config_done() frees it
 * @param err  filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int config_parse(const char *text, struct config *out,
                          struct err *err);

/**
 * Copies a config deeply.
 *
 * @param from read
 * @param out  filled on success; config_done() frees it
 * @param err  filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int config_copy(const struct config *from, struct config *out,
                         struct err *err);

/**
 * Writes a config as JSON for people, every field of it, with a final newline.
 *
 * @param config read
 * @param out    the text, the caller's to free, on success
 * @param err    filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int config_text(const struct config *config, char **out,
                         struct err *err);

/** @param config its strings are freed; it is empty then */
void config_done(struct config *config);

#endif
