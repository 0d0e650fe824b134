/* The start of a registry as the command line says. */
#ifndef SESSIONFS_START_H
#define SESSIONFS_START_H

#include "core/registry.h"

struct options;

/**
 * Says how long the end of sandboxes may take.
 *
 * @param options as parsed
 * @return milliseconds
 */
int64_t start_end_ms(const struct options *options);

/**
 * Opens the registry.
 *
 * @param options   as parsed
 * @param providers the table, which ends with NULL
 * @param loop      borrowed; outlives the registry
 * @param hooks     copied
 * @param out       the registry, on success
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int start_registry(const struct options *options,
                            const struct provider_ops *const *providers,
                            struct loop *loop,
                            const struct registry_hooks *hooks,
                            struct registry **out, struct err *err);

/**
 * Says whether the profiles that the command line names can be read.
 *
 * @param options   as parsed
 * @param providers the table, which ends with NULL
 * @param lacking   as registry_check_profiles()
 * @param err       filled on failure
 * @return 0 or a negative errno
 */
MUST_USE int start_check_profiles(const struct options *options,
                                  const struct provider_ops *const *providers,
                                  struct buf *lacking, struct err *err);

#endif
