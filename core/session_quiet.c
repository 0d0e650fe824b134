/*
 * Whether anything but the mount changes a workspace. `stirs` moves with each
 * command, and is odd once it was found that the last one left nothing behind;
 * every request looks at it, so it needs no lock.
 */
#include "core/clock.h"
#include "core/session_priv.h"

enum {
    LOOK_MS = 100
};

static const unsigned long long quiet = 1;

static void unquiet(struct session *session)
{
    unsigned long long now = atomic_load(&session->stirs);

    while (!atomic_compare_exchange_weak(&session->stirs, &now,
                                         (now + 2) & ~quiet)) {
    }
}

void session_stir_begin(struct session *session)
{
    (void)atomic_fetch_add(&session->stirring, 1);
    unquiet(session);
    session_changed(session);
}

void session_stir_end(struct session *session)
{
    (void)atomic_fetch_sub(&session->stirring, 1);
    atomic_store(&session->quiet_look_ms, 0);
    session_changed(session);
}

/* Looks whether processes are left; not too often. */
static bool look(struct session *session, unsigned long long stirs)
{
    int64_t now = clock_ms();
    struct provider *provider;

    if (atomic_load(&session->stirring) ||
        now < atomic_load(&session->quiet_look_ms)) {
        return false;
    }
    atomic_store(&session->quiet_look_ms, now + LOOK_MS);
    mutex_lock(&session->lock);
    provider = session->provider;
    mutex_unlock(&session->lock);
    return provider && provider_quiet(provider, session->number) &&
           atomic_compare_exchange_strong(&session->stirs, &stirs,
                                          stirs | quiet);
}

bool session_quiet(struct session *session)
{
    unsigned long long stirs = atomic_load(&session->stirs);

    return (stirs & quiet) || look(session, stirs);
}
