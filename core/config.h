/* The config of a session: which provider, and what the provider is told. */
#ifndef SESSIONFS_CONFIG_H
#define SESSIONFS_CONFIG_H

#include "core/err.h"

struct config {
    char *provider;
    char *provider_config; /* A JSON object. */
};

/**
 * Makes the built-in config.
 *
 * @param provider its provider
 * @param out      filled on success; config_done() frees it
 * @param err      filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int config_default(const char *provider, struct config *out,
                            struct err *err);

/**
 * Reads a config.
 *
 * @param text JSON
 * @param out  filled on success; config_done() frees it
 * @param err  filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int config_parse(const char *text, struct config *out,
                          struct err *err);

/**
 * Writes a config as JSON.
 *
 * @param config read
 * @param out    the text, the caller's to free, on success
 * @param err    filled on failure
 * @return 0 or -ENOMEM
 */
MUST_USE int config_text(const struct config *config, char **out,
                         struct err *err);

/** @param config its strings are freed and set to NULL */
void config_done(struct config *config);

#endif
