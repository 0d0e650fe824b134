/* --check: whether a mount with the same options would work, and if not, why.
 * Mounts nothing and leaves nothing behind. */
#ifndef SESSIONFS_CHECK_H
#define SESSIONFS_CHECK_H

struct options;
struct provider_ops;

/**
 * Prints a line for FUSE, one for the state directory and one for each
 * provider.
 *
 * @param options   as parsed
 * @param providers the table, which ends with NULL
 * @return the exit status: 0 when FUSE, the state directory and the chosen
 *         provider work
 */
int check_run(const struct options *options,
              const struct provider_ops *const *providers);

#endif
