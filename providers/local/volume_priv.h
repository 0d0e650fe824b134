/* Workspaces on disk, as the files that implement volume.h share them. */
#ifndef SESSIONFS_LOCAL_VOLUME_PRIV_H
#define SESSIONFS_LOCAL_VOLUME_PRIV_H

#include "core/provider.h"
#include "providers/local/head.h"
#include "providers/local/link.h"

/* Names in a sandbox's directory, besides those of head.h. */
#define VOLUME_UPPER   "upper"
#define VOLUME_WORK    "work"
#define VOLUME_LOWER   "lower"
#define VOLUME_PLAIN   "workspace"
#define VOLUME_REMOVED "workspace.removed"

/* The sandbox's directory, readable; or a negative errno. */
MUST_USE int volume_dir(const struct sandbox *sandbox, struct err *err);
/* An O_PATH fd of a directory in it, or a negative errno with the words. */
MUST_USE int volume_below(int dir, const char *name, struct err *err);
/* Whether there is a name. */
bool volume_has(int dir, const char *name);
/* Makes a directory of the sandbox's user, where there is none. */
MUST_USE int volume_give_dir(int dir, const char *name, struct link_ids ids,
                             struct err *err);
/* Makes one of ours, where there is none. */
MUST_USE int volume_own_dir(int dir, const char *name, struct err *err);
/* The name of the working directory of a head. */
void volume_name_work(const struct head *head, char out[HEAD_NAME_SIZE]);
/* A working directory that no mount has used: the kernel wants it so. O_PATH.
 */
MUST_USE int volume_fresh_work(int dir, const struct head *head,
                               const struct limits *limits, struct err *err);
/* Removes what a workspace is made of; success when there is none. */
MUST_USE int volume_clear(int dir, const struct head *head,
                          const struct limits *limits, struct err *err);

#endif
