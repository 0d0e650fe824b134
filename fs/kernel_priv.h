/* Inside of fs/kernel*.c. */
#ifndef SESSIONFS_KERNEL_PRIV_H
#define SESSIONFS_KERNEL_PRIV_H

#include "core/mutex.h"
#include "fs/kernel.h"
#include "fs/kernel_near.h"
#include "fs/kernel_rest.h"
#include "fs/kernel_uring.h"
#include "fs/kernel_wire.h"

#include <sys/uio.h>

struct kernel {
    unsigned without; /* A bit for each feature. */
    bool shared;      /* Others than root may write. */

    /* Written in INIT, before other requests come. */
    unsigned major;
    unsigned minor;
    atomic_int fd;    /* -1 once the connection ends. */
    uint64_t init;    /* The request's unique; 0: it is answered. */
    uint64_t offered; /* By INIT. */
    atomic_uint uses; /* A bit for each feature. */

    struct kernel_uring *uring; /* NULL: requests come by the fd. */
    struct kernel_near near;
    struct kernel_rest rest;
    atomic_ulong changes;
    atomic_ulong backings; /* Ids that the kernel knows. */
    atomic_bool pathless;  /* It takes no O_PATH fds for them. */

    struct mutex lock;
    struct cond change;
    unsigned telling GUARDED; /* by lock: threads that write to the kernel. */
    bool ended GUARDED;       /* by lock */
};

/* Tries whether the kernel takes files of ours, right after INIT. */
void kernel_pass_probe(struct kernel *kernel);

/* Takes a feature back that turned out not to be there. */
void kernel_drop(struct kernel *kernel, enum kernel_feature feature);

#endif
