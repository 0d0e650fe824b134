/* Requests below workspace/. See workspace.h. */
#include "fs/workspace.h"

const struct fs_part workspace_part = {.lookup = NULL};
