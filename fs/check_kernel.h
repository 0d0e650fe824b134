/* What this machine's kernel has, for --check. */
#ifndef SESSIONFS_CHECK_KERNEL_H
#define SESSIONFS_CHECK_KERNEL_H

/**
 * Prints a line each, of two blanks and words, about the version of the FUSE
 * protocol and what follows from it. Mounts in a child that has a mount
 * namespace of its own, so nothing is seen of that elsewhere.
 */
void check_kernel_fuse(void);

/** Prints a line each about what sandboxes on this machine are made of. */
void check_kernel_sandboxes(void);

#endif
