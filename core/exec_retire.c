/*
 * The newest commands stay; those before them go, in the background, once they
 * are over and nobody holds them, as a reader of their output does: first the
 * record, then the files. Files whose record went just before a crash go when
 * the session retires for the first time.
 */
#include "core/cleanup.h"
#include "core/exec_priv.h"
#include "core/registry_priv.h"

#include <dirent.h>
#include <stdio.h>

enum {
    BATCH = 64
};

static void remove_files(const struct session *session, uint64_t n)
{
    static const char *const endings[] = {"log", "idx"};

    for (size_t i = 0; i < ARRAY_SIZE(endings); i++) {
        AUTO_FREE char *path = NULL;

        if (asprintf(&path, "%s/execs/%llu.%s", session->dir,
                     (unsigned long long)n, endings[i]) < 0) {
            path = NULL;
            return;
        }
        (void)unlink(path);
    }
}

static bool is_orphan(const struct session *session, uint64_t n)
{
    struct exec_info info;
    struct err err = ERR_INIT;

    return store_exec_load(session->registry->store, session->number, n, &info,
                           &err) == -ENOENT;
}

static void remove_orphans(const struct session *session, uint64_t most)
{
    AUTO_FREE char *path = NULL;
    const struct dirent *entry;
    DIR *dir;

    if (asprintf(&path, "%s/execs", session->dir) < 0) {
        path = NULL;
        return;
    }
    dir = opendir(path);
    entry = dir ? readdir(dir) : NULL;
    while (entry) {
        uint64_t n = strtoull(entry->d_name, NULL, 10);

        if (n && n <= most && is_orphan(session, n)) {
            remove_files(session, n);
        }
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
}

struct retiring {
    struct session *session;
    uint64_t most;
};

/* Removes the records of a batch but of those that somebody holds, and leaves
 * the numbers of the removed ones in it. */
static int drop_batch(struct session *session, uint64_t *batch, size_t *count,
                      struct err *err) REQUIRES(session->lock)
{
    size_t dropped = 0;

    for (size_t i = 0; i < *count; i++) {
        if (!exec_retire_held(session, batch[i])) {
            batch[dropped++] = batch[i];
        }
    }
    *count = dropped;
    return store_exec_drop(session->registry->store, session->number, batch,
                           dropped, err);
}

/* The next numbers that are too old; false at the end. */
static bool next_batch(const struct retiring *retiring, uint64_t *after,
                       uint64_t *batch, size_t *count)
{
    const struct session *session = retiring->session;
    struct err err = ERR_INIT;
    ssize_t n = store_exec_list(session->registry->store, session->number,
                                *after, batch, BATCH, &err);

    while (n > 0 && batch[n - 1] > retiring->most) {
        n--;
    }
    if (n <= 0) {
        return false;
    }
    *after = batch[n - 1];
    *count = (size_t)n;
    return true;
}

/* What is held goes when it is given back; what cannot be removed now is tried
 * with the next command. False: nothing is left behind `after`. */
static bool retire_batch(const struct retiring *retiring, uint64_t *after)
{
    struct session *session = retiring->session;
    struct err err = ERR_INIT;
    uint64_t batch[BATCH];
    size_t count = 0;
    int rc;

    if (!next_batch(retiring, after, batch, &count)) {
        return false;
    }
    mutex_lock(&session->lock);
    rc = drop_batch(session, batch, &count, &err);
    mutex_unlock(&session->lock);
    for (size_t i = 0; i < count && rc == 0; i++) {
        remove_files(session, batch[i]);
    }
    return true;
}

static void retire(void *arg)
{
    struct retiring *retiring = arg;
    struct session *session = retiring->session;
    uint64_t after = 0;
    bool first;

    mutex_lock(&session->lock);
    first = !session->retired;
    session->retired = true;
    mutex_unlock(&session->lock);
    if (first) {
        remove_orphans(session, retiring->most);
    }
    while (retire_batch(retiring, &after)) {
    }
    session_unref(session);
    free(retiring);
}

static void retire_to(struct session *session, uint64_t most)
{
    struct retiring *retiring = malloc(sizeof(*retiring));

    if (!retiring) {
        return;
    }
    retiring->session = session_ref(session);
    retiring->most = most;
    if (session_run(session, session->files, retire, retiring) < 0) {
        session_unref(session);
        free(retiring);
    }
}

void exec_retire(struct session *session, uint64_t n)
{
    uint64_t keep = session->registry->execs_keep;

    if (keep && n > keep) {
        retire_to(session, n - keep);
    }
}

void exec_retire_left(struct session *session)
{
    uint64_t keep = session->registry->execs_keep;
    struct exec_info newest;
    struct err err = ERR_INIT;
    bool retired;

    mutex_lock(&session->lock);
    retired = session->retired;
    mutex_unlock(&session->lock);
    if (keep && !retired &&
        store_exec_load(session->registry->store, session->number, 0, &newest,
                        &err) == 0 &&
        newest.n > keep) {
        const struct retiring retiring = {session, newest.n - keep};
        uint64_t after = 0;

        (void)retire_batch(&retiring, &after);
        retire_to(session, retiring.most);
    }
}

void exec_retire_due(struct session *session, uint64_t n)
{
    retire_to(session, n);
}
