/*
 * On which CPUs a thread runs. Threads and programs begin where the thread that
 * starts them is bound; so whoever may be started by a bound one frees itself.
 */
#ifndef SESSIONFS_CPUS_H
#define SESSIONFS_CPUS_H

/**
 * Binds the calling thread. Where the process's first one, which is never
 * bound, may not run there, nothing changes: whoever started us chose its CPUs.
 *
 * @param cpu its number
 */
void cpus_bind(int cpu);

/** The calling thread runs wherever the process's first one may. */
void cpus_free(void);

#endif
