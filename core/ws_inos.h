/* Inode numbers that a tree shows in place of those that files have. */
#ifndef SESSIONFS_CORE_WS_INOS_H
#define SESSIONFS_CORE_WS_INOS_H

#include <stdint.h>

/* Not safe for threads. The oldest are forgotten where there are many. */
struct ws_inos;

/** @param inos NULL: there are none @param theirs a file's number
 *  @param none what is said where nothing is kept @return what is shown */
uint64_t ws_inos_shown(const struct ws_inos *inos, uint64_t theirs,
                       uint64_t none);
/** Without memory nothing is kept. @param inos made where it is NULL
 *  @param theirs a file's number @param shown for it from now on */
void ws_inos_keep(struct ws_inos **inos, uint64_t theirs, uint64_t shown);
/** @param inos freed; NULL is fine */
void ws_inos_free(struct ws_inos *inos);

#endif
