/*
 * What a sandbox of `local` may use: from the keys of its config to how each
 * limit is enforced.
 */
#ifndef SESSIONFS_LOCAL_QUOTA_H
#define SESSIONFS_LOCAL_QUOTA_H

#include "core/config_key.h"
#include "core/err.h"
#include "providers/local/wire.h"

struct buf;

/* Of `local`'s provider_config; ends with a key without a name. */
extern const struct config_key local_keys[];

/**
 * Reads the limits of a sandbox. What the config does not say has its default.
 *
 * @param config a JSON object
 * @param out    written on success
 * @param err    filled on failure
 * @return 0, -EINVAL or -ENOMEM
 */
MUST_USE int quota_read(const char *config, struct wire_quota *out,
                        struct err *err);

/**
 * Tells how each limit is enforced, as provider_limits_fn does.
 *
 * @param quota the limits
 * @param host  what this machine has
 * @param why   it has no more, in words
 * @param out   appended to
 * @param err   filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int quota_tell(const struct wire_quota *quota,
                        const struct wire_host *host, const char *why,
                        struct buf *out, struct err *err);

#endif
