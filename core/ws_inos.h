/*
 * Inode numbers that a tree shows in place of those that files have. No two
 * are shown by one: who has a number that is shown for another, as one that is
 * made where that one was, is shown by the number of that.
 */
#ifndef SESSIONFS_CORE_WS_INOS_H
#define SESSIONFS_CORE_WS_INOS_H

#include <stdint.h>

/* Not safe for threads. The oldest are forgotten where there are many. */
struct ws_inos;

/** @param inos NULL: there are none @param theirs a file's number
 *  @return what is shown: itself where nothing is kept */
uint64_t ws_inos_shown(struct ws_inos *inos, uint64_t theirs);
/** Without memory nothing is kept. @param inos made where it is NULL
 *  @param theirs a file's number @param shown for it from now on */
void ws_inos_keep(struct ws_inos **inos, uint64_t theirs, uint64_t shown);
/** @param inos freed; NULL is fine */
void ws_inos_free(struct ws_inos *inos);

#endif
