/*
 * The newest commands stay; those before them go, in the background, once they
 * are over: first the record, then the files. Files whose record went just
 * before a crash go when the session retires for the first time.
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

static void retire(void *arg)
{
    struct retiring *retiring = arg;
    struct session *session = retiring->session;
    uint64_t dropped[BATCH];
    struct err err = ERR_INIT;
    ssize_t count = BATCH;
    bool first;

    mutex_lock(&session->lock);
    first = !session->retired;
    session->retired = true;
    mutex_unlock(&session->lock);
    if (first) {
        remove_orphans(session, retiring->most);
    }
    /* What cannot be removed now is tried with the next command. */
    while (count == BATCH) {
        count = store_exec_drop(session->registry->store, session->number,
                                retiring->most, dropped, BATCH, &err);
        for (ssize_t i = 0; i < count; i++) {
            remove_files(session, dropped[i]);
        }
    }
    session_unref(session);
    free(retiring);
}

void exec_retire(struct session *session, uint64_t n)
{
    uint64_t keep = session->registry->execs_keep;
    struct retiring *retiring;

    if (!keep || n <= keep) {
        return;
    }
    retiring = malloc(sizeof(*retiring));
    if (!retiring) {
        return;
    }
    retiring->session = session_ref(session);
    retiring->most = n - keep;
    if (session_run(session, session->files, retire, retiring) < 0) {
        session_unref(session);
        free(retiring);
    }
}
