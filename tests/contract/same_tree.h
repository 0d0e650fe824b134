/* Two trees that should be the same. */
#ifndef SESSIONFS_TESTS_SAME_TREE_H
#define SESSIONFS_TESTS_SAME_TREE_H

struct provider_root;

/**
 * Fails the test unless two trees hold the same: names, types, modes, owners,
 * times of change, links, contents, targets and attributes.
 *
 * @param a    a directory
 * @param b    what it must be
 * @param what told when they differ
 * @param root by which files of a that lie in parts are read; or NULL
 */
void same_tree(const char *a, const char *b, const char *what,
               const struct provider_root *root);

#endif
