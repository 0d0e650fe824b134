/* Binding threads to CPUs. See cpus.h. */
#include "core/cpus.h"

#include <sched.h>
#include <unistd.h>

void cpus_bind(int cpu)
{
    cpu_set_t set;

    if (sched_getaffinity(getpid(), sizeof(set), &set) < 0 ||
        !CPU_ISSET((unsigned)cpu, &set)) {
        return;
    }
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

void cpus_free(void)
{
    cpu_set_t set;

    if (sched_getaffinity(getpid(), sizeof(set), &set) == 0) {
        (void)sched_setaffinity(0, sizeof(set), &set);
    }
}
