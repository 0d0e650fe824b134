/*
 * On which CPUs a thread runs. Threads and programs begin where the thread that
 * starts them is bound; so whoever may be started by a bound one frees itself.
 */
#ifndef SESSIONFS_CPUS_H
#define SESSIONFS_CPUS_H

/**
 * Binds the calling thread. Where it may not run there, nothing changes.
 *
 * @param cpu its number
 */
void cpus_bind(int cpu);

/** The calling thread runs wherever the process's first one may, which is
 *  never bound. */
void cpus_free(void);

#endif
