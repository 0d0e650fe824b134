/* Two trees that should be the same. */
#ifndef SESSIONFS_TESTS_SAME_TREE_H
#define SESSIONFS_TESTS_SAME_TREE_H

#include <stdbool.h>

struct provider_root;

/**
 * Tells whether two trees hold the same: names, types, modes, owners, times of
 * change, links, contents, targets and attributes.
 *
 * @param a    a directory
 * @param b    what it must be
 * @param what told with the first difference; NULL: nothing is told
 * @param root by which files of a that lie in parts are read; or NULL
 * @return whether they do
 */
bool same_tree(const char *a, const char *b, const char *what,
               const struct provider_root *root);

#endif
