/*
 * Requests at and below sessions/ID/workspace/, handed to core/workspace.h.
 *
 * The directory workspace/ itself has an inode with a session and a row but no
 * ws_node: its tree is the one that session_files_enter() gives, or none. All
 * other inodes of this part have a ws_node and no row. The part is entered for
 * statfs in a whole session, too.
 */
#ifndef SESSIONFS_FS_WORKSPACE_H
#define SESSIONFS_FS_WORKSPACE_H

#include "fs/fs.h"

extern const struct fs_part workspace_part;

#endif
