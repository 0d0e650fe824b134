/*
 * Named places at which a test can kill the process, to see what a start
 * afterwards makes of it. SESSIONFS_CRASH=NAME in the environment chooses one.
 */
#ifndef SESSIONFS_CRASH_H
#define SESSIONFS_CRASH_H

/** @param name a place; the process gets SIGKILL when it is the chosen one */
void crash_point(const char *name);

#endif
