/*
 * What was written through the mount and is not with the engine. It is sent
 * before a command and before a pause; what cannot be sent when nobody has it
 * open any more is kept in the session's directory, and sent later: with what
 * is written then, or by itself, with back-off, also by the next daemon.
 */
#include "core/cleanup.h"
#include "core/json.h"
#include "core/log.h"
#include "core/registry_priv.h"
#include "core/session_priv.h"
#include "core/workers.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct caller nobody = {.uid = 0};

/* The path of what is kept; NULL without memory. */
static char *kept_path(const char *dir)
{
    char *path = NULL;

    return asprintf(&path, "%s/unsent", dir) < 0 ? NULL : path;
}

bool session_unsent_look(const char *dir)
{
    AUTO_FREE char *path = kept_path(dir);

    return path && access(path, F_OK) == 0;
}

static bool has_kept(struct session *session)
{
    bool kept;

    mutex_lock(&session->lock);
    kept = session->unsent;
    mutex_unlock(&session->lock);
    return kept;
}

/* ---- Telling ---- */

static void add_event(struct session *session, const char *name,
                      const char *path, const struct err *err)
{
    struct js *detail = js_object();

    js_set_text(detail, "path", path);
    if (err->code) {
        js_set_text(detail, "message", err->msg);
    }
    session_event(session, name, 0, NULL, detail);
}

/* Of what is tried again and again only the first failure is told. */
static void tell_kept(struct session *session, const char *path,
                      const struct err *err)
{
    bool first;

    mutex_lock(&session->lock);
    first = !session->unsent_told;
    mutex_unlock(&session->lock);
    if (first) {
        session_fail(session, "send", 0, path, &nobody, err);
    }
}

/* Of what is sent that was kept. */
static void told_late(void *arg, enum ws_fate fate, const char *path,
                      const struct err *err)
{
    struct session *session = arg;

    switch (fate) {
    case WS_SENT:
        add_event(session, "file.sent", path, err);
        return;
    case WS_BESIDE:
        add_event(session, "file.conflict", path, err);
        session_fail(session, "send", 0, path, &nobody, err);
        return;
    case WS_ASIDE:
        add_event(session, "file.aside", path, err);
        session_fail(session, "send", 0, path, &nobody, err);
        return;
    case WS_LOST:
        add_event(session, "file.lost", path, err);
        session_fail(session, "send", 0, path, &nobody, err);
        return;
    case WS_KEPT:
        tell_kept(session, path, err);
    }
}

/* Of what is not sent now. */
static void told_now(void *arg, enum ws_fate fate, const char *path,
                     const struct err *err)
{
    struct session *session = arg;
    char id[SESSION_ID_SIZE];

    session_id(session, id);
    if (fate == WS_LOST) {
        log_error("session %s: '%s' was written and is lost: %s", id, path,
                  err->msg);
        add_event(session, "file.lost", path, err);
        session_fail(session, "keep", 0, path, &nobody, err);
        return;
    }
    log_warning("session %s: '%s' was written and could not be sent%s%s; it "
                "is kept, and is sent later",
                id, path, err->code ? ": " : "", err->msg);
    add_event(session, "file.kept", path, err);
    mutex_lock(&session->lock);
    session->unsent = true;
    session->unsent_told = false;
    mutex_unlock(&session->lock);
}

/* ---- Sending what was kept ---- */

static int send_kept(struct session *session, struct workspace *tree,
                     const struct limits *limits, struct err *err)
{
    const struct ws_told told = {told_late, session};
    AUTO_FREE char *path = kept_path(session->dir);
    int rc = ws_send_kept(tree, limits, &told, err);

    /* What is kept meanwhile is in it. */
    mutex_lock(&session->lock);
    session->unsent_told = rc < 0;
    if (path && (rmdir(path) == 0 || errno == ENOENT)) {
        session->unsent = false;
        session->retries = 0;
    }
    mutex_unlock(&session->lock);
    session_changed(session);
    return rc;
}

/* The door is passed, or not. */
static void entered(void *arg, int rc, struct workspace *tree,
                    const struct err *why)
{
    struct session *session = arg;
    const struct limits limits = session_limits(session, SESSION_WAIT_CALL);
    struct err err = *why;

    if (rc == 0 && tree) {
        rc = send_kept(session, tree, &limits, &err);
    } else if (rc < 0) {
        tell_kept(session, NULL, why);
        mutex_lock(&session->lock);
        session->unsent_told = true;
        mutex_unlock(&session->lock);
    }
    if (rc == 0 || tree) {
        ws_unref(tree);
        session_files_leave(session);
    }
    if (has_kept(session)) {
        session_doubt(session); /* Perhaps it is lost, or paused. */
        session_observe(session);
        session_retry(session, SESSION_RETRY_SEND);
    }
    session_unref(session);
}

static void enter(void *arg)
{
    struct session *session = arg;
    bool exists;

    mutex_lock(&session->lock);
    exists = session->has_record &&
             session->record.status != SESSION_DELETING &&
             session->record.status != SESSION_STARTING;
    mutex_unlock(&session->lock);
    if (!exists || registry_closing(session->registry)) {
        session_unref(session);
        return;
    }
    session_files_enter(session, SESSION_WRITE, &nobody, entered, session);
}

void session_unsent_send(struct session *session)
{
    if (session_run(session, session->files, enter, session_ref(session)) < 0) {
        session_unref(session);
        session_retry(session, SESSION_RETRY_SEND);
    }
}

void session_unsent_drop(struct session *session)
{
    AUTO_FREE char *path = kept_path(session->dir);
    AUTO_FREE char *aside = NULL;

    if (asprintf(&aside, "%s/aside", session->dir) < 0) {
        aside = NULL;
    }
    if (aside) {
        (void)registry_trash_path(session->registry, aside);
    }
    if (path && has_kept(session) &&
        registry_trash_path(session->registry, path)) {
        mutex_lock(&session->lock);
        session->unsent = false;
        mutex_unlock(&session->lock);
    }
}

/* ---- What is written now ---- */

static int send_within(struct session *session, const struct limits *limits,
                       struct err *err)
{
    bool commands;
    struct workspace *tree = session_files_tree(session, &commands);
    int rc = 0;

    if (!tree && has_kept(session)) {
        rc = session_files_make_tree(session, &tree, err);
    }
    if (rc == 0 && tree && has_kept(session) &&
        !registry_closing(session->registry)) {
        rc = send_kept(session, tree, limits, err);
    }
    if (rc == 0 && tree) {
        ws_contested(tree, commands);
        rc = ws_sync(tree, limits, err);
    }
    ws_unref(tree);
    return rc;
}

int session_files_send(struct session *session, struct err *err)
{
    const struct limits limits = session_limits(session, SESSION_WAIT_CALL);

    return send_within(session, &limits, err);
}

void session_files_end(struct session *session, int64_t deadline_ms)
{
    const struct limits limits = {.deadline_ms = deadline_ms,
                                  .cancel = &session->registry->cancel};
    const struct ws_told told = {told_now, session};
    bool commands;
    struct workspace *tree = session_files_tree(session, &commands);

    if (tree) {
        ws_contested(tree, commands);
        ws_end(tree, &limits, &told);
        ws_unref(tree);
    }
}

void session_files_keep(struct session *session, struct ws_file *file)
{
    const struct ws_told told = {told_now, session};

    ws_keep(file, &told);
    if (has_kept(session)) {
        session_retry(session, SESSION_RETRY_SEND);
    }
}

bool session_files_unsent(struct session *session)
{
    struct workspace *tree = session_files_tree(session, NULL);
    bool unsent = has_kept(session) || (tree && ws_unsent(tree));

    ws_unref(tree);
    return unsent;
}

/* ---- What an earlier daemon has kept ---- */

static void find_one(struct registry *registry, const char *name)
{
    AUTO_FREE char *dir = NULL;
    struct session *session = NULL;
    struct err err = ERR_INIT;
    char *end = NULL;
    uint64_t number = strtoull(name, &end, 10);

    if (!number || *end ||
        asprintf(&dir, "%s/sessions/%s", registry->state_dir, name) < 0) {
        dir = NULL;
        return;
    }
    if (session_unsent_look(dir) &&
        registry_load(registry, number, &session, &err) == 0) {
        session_unsent_send(session);
        session_unref(session);
    }
}

static void find(void *arg)
{
    struct registry *registry = arg;
    AUTO_FREE char *path = NULL;
    DIR *dir = NULL;
    const struct dirent *entry;

    if (asprintf(&path, "%s/sessions", registry->state_dir) < 0) {
        path = NULL;
    }
    dir = path ? opendir(path) : NULL;
    entry = dir ? readdir(dir) : NULL;
    while (entry && !registry_closing(registry)) {
        find_one(registry, entry->d_name);
        entry = readdir(dir);
    }
    if (dir) {
        (void)closedir(dir);
    }
    registry_work_end(registry);
}

void registry_find_unsent(struct registry *registry)
{
    registry_work_begin(registry);
    if (workers_run(registry->trash, find, registry) < 0) {
        registry_work_end(registry); /* The next start finds it. */
    }
}
