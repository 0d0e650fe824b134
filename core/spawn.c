/* See spawn.h. */
#include "core/spawn.h"

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

/* Returns a positive errno, as posix_spawn() does. */
static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all;
    sigset_t none;
    int rc;

    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID |
                                                  POSIX_SPAWN_SETSIGDEF |
                                                  POSIX_SPAWN_SETSIGMASK);
    if (rc == 0) {
        rc = posix_spawnattr_setsigdefault(attributes, &all);
    }
    return rc == 0 ? posix_spawnattr_setsigmask(attributes, &none) : rc;
}

/* The daemon's mask lets all through, as requests come masked; what a program
 * makes by itself is not to be open to all. From here on the mask is this
 * thread's alone: others make files meanwhile. */
static mode_t mask_for_program(bool *apart)
{
    *apart = unshare(CLONE_FS) == 0;
    return *apart ? umask(S_IWGRP | S_IWOTH) : 0;
}

int spawn_program(const char *path, const posix_spawn_file_actions_t *actions,
                  char *const argv[], char *const env[], pid_t *out)
{
    posix_spawnattr_t attributes;
    int rc = posix_spawnattr_init(&attributes);

    if (rc != 0) {
        return -rc;
    }
    rc = set_attributes(&attributes);
    if (rc == 0) {
        bool apart;
        mode_t mask = mask_for_program(&apart);

        rc = posix_spawnp(out, path, actions, &attributes, argv, env);
        if (apart) {
            (void)umask(mask);
        }
    }
    (void)posix_spawnattr_destroy(&attributes);
    return -rc;
}
