/* See spawn.h. */
#include "core/spawn.h"

#include <signal.h>

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
        rc = posix_spawnp(out, path, actions, &attributes, argv, env);
    }
    (void)posix_spawnattr_destroy(&attributes);
    return -rc;
}
