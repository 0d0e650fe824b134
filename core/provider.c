/*
 * Checked calls of provider slots: the only code that calls them.
 * See provider.h.
 */
#include "core/provider.h"

#include "core/buf.h"
#include "core/mutex.h"
#include "core/provider_files.h"
#include "core/provider_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const op_names[OP_COUNT] = {
    [OP_CREATE] = "create",
    [OP_RESUME] = "resume",
    [OP_PAUSE] = "pause",
    [OP_DESTROY] = "destroy",
    [OP_CHECKPOINT] = "checkpoint",
    [OP_RESTORE] = "restore",
    [OP_FORK] = "fork",
    [OP_DROP] = "drop",
    [OP_OPEN] = "open",
    [OP_LIST] = "list",
    [OP_STATUS] = "status",
    [OP_EXEC] = "exec",
    [OP_SIGNAL] = "signal",
    [OP_CHANGES] = "changes",
    [OP_ROOT] = "root",
    [OP_FILES] = "files",
    [OP_RUN] = "run",
};

struct provider_calls {
    struct mutex turn; /* Held for a call of a PROVIDER_SERIAL provider. */
    atomic_uint_fast64_t calls[OP_COUNT];
    atomic_uint_fast64_t failures[OP_COUNT];
};

void instance_done(struct instance *instance)
{
    free(instance->external_id);
    free(instance->display_name);
    free(instance->workspace_path);
    free(instance->provider_state);
    free(instance->metadata);
    memset(instance, 0, sizeof(*instance));
}

/* Copies a string that may be NULL. */
static int copy_text(char **out, const char *from)
{
    if (from) {
        *out = strdup(from);
        return *out ? 0 : -ENOMEM;
    }
    return 0;
}

int instance_copy(struct instance *out, const struct instance *from)
{
    struct instance copy = {0};

    if (copy_text(&copy.external_id, from->external_id) < 0 ||
        copy_text(&copy.display_name, from->display_name) < 0 ||
        copy_text(&copy.workspace_path, from->workspace_path) < 0 ||
        copy_text(&copy.provider_state, from->provider_state) < 0 ||
        copy_text(&copy.metadata, from->metadata) < 0) {
        instance_done(&copy);
        return -ENOMEM;
    }
    *out = copy;
    return 0;
}

static bool complete(const struct provider_ops *ops)
{
    return ops->name && ops->summary && ops->open && ops->close &&
           ops->create && ops->resume && ops->destroy && ops->status &&
           ops->exec && (ops->root || ops->files);
}

int provider_open(const struct provider_ops *ops,
                  const struct provider_env *env, struct provider **out,
                  struct err *err)
{
    struct provider_calls *calls;
    int rc;

    if (!complete(ops)) {
        return err_set(err, ENOSYS, "the table of '%s' lacks a required slot",
                       ops->name ? ops->name : "?");
    }
    calls = calloc(1, sizeof(*calls));
    if (!calls) {
        return err_no_memory(err);
    }
    mutex_init(&calls->turn);
    rc = ops->open(env, out, err);
    if (rc < 0) {
        mutex_done(&calls->turn);
        free(calls);
        return rc;
    }
    (*out)->ops = ops;
    (*out)->calls = calls;
    return 0;
}

void provider_close(struct provider *provider)
{
    struct provider_calls *calls;

    if (provider) {
        calls = provider->calls;
        provider->ops->close(provider);
        mutex_done(&calls->turn);
        free(calls);
    }
}

void provider_begin(struct provider *provider, enum provider_op op) NO_TSA
{
    atomic_fetch_add(&provider->calls->calls[op], 1);
    if (provider->ops->flags & PROVIDER_SERIAL) {
        mutex_lock(&provider->calls->turn);
    }
}

/* Makes sure that a failure has words and a code. */
static int with_words(int rc, struct err *err)
{
    char words[ERR_MSG_SIZE];

    if (rc >= 0 || err->code == -rc) {
        return rc;
    }
    memcpy(words, err->msg, sizeof(words));
    return err_set(err, -rc, "%s", words[0] ? words : "failed");
}

int provider_end(struct provider *provider, enum provider_op op, int rc,
                 struct err *err) NO_TSA
{
    if (provider->ops->flags & PROVIDER_SERIAL) {
        mutex_unlock(&provider->calls->turn);
    }
    if (rc >= 0) {
        return 0;
    }
    if (op != OP_FILES || rc != -ENOENT) {
        atomic_fetch_add(&provider->calls->failures[op], 1);
    }
    return with_words(rc, err);
}

int provider_cannot(const struct provider *provider, enum provider_op op,
                    struct err *err)
{
    return err_set(err, EOPNOTSUPP, "provider '%s' cannot %s",
                   provider->ops->name, op_names[op]);
}

static int life(struct provider *provider, provider_life_fn *slot,
                enum provider_op op, struct sandbox *sandbox,
                const struct limits *limits, struct err *err)
{
    if (!slot) {
        return provider_cannot(provider, op, err);
    }
    provider_begin(provider, op);
    return provider_end(provider, op, slot(provider, sandbox, limits, err),
                        err);
}

int provider_create(struct provider *provider, struct sandbox *sandbox,
                    const struct limits *limits, struct err *err)
{
    return life(provider, provider->ops->create, OP_CREATE, sandbox, limits,
                err);
}

int provider_resume(struct provider *provider, struct sandbox *sandbox,
                    const struct limits *limits, struct err *err)
{
    return life(provider, provider->ops->resume, OP_RESUME, sandbox, limits,
                err);
}

int provider_pause(struct provider *provider, struct sandbox *sandbox,
                   const struct limits *limits, struct err *err)
{
    return life(provider, provider->ops->pause, OP_PAUSE, sandbox, limits, err);
}

int provider_destroy(struct provider *provider, struct sandbox *sandbox,
                     const struct limits *limits, struct err *err)
{
    return life(provider, provider->ops->destroy, OP_DESTROY, sandbox, limits,
                err);
}

int provider_checkpoint(struct provider *provider, struct sandbox *sandbox,
                        const struct limits *limits, struct err *err)
{
    return life(provider, provider->ops->checkpoint, OP_CHECKPOINT, sandbox,
                limits, err);
}

int provider_status(struct provider *provider, const struct sandbox *sandbox,
                    const struct limits *limits, enum provider_state *out,
                    struct err *err)
{
    provider_begin(provider, OP_STATUS);
    return provider_end(
        provider, OP_STATUS,
        provider->ops->status(provider, sandbox, limits, out, err), err);
}

int provider_exec(struct provider *provider, const struct sandbox *sandbox,
                  const struct command *command, const struct limits *limits,
                  const struct command_sink *sink, void *arg, struct err *err)
{
    provider_begin(provider, OP_EXEC);
    return provider_end(
        provider, OP_EXEC,
        provider->ops->exec(provider, sandbox, command, limits, sink, arg, err),
        err);
}

int provider_signal(struct provider *provider, const struct sandbox *sandbox,
                    uint64_t n, int signal, struct err *err)
{
    if (!provider->ops->signal) {
        return provider_cannot(provider, OP_SIGNAL, err);
    }
    provider_begin(provider, OP_SIGNAL);
    return provider_end(
        provider, OP_SIGNAL,
        provider->ops->signal(provider, sandbox, n, signal, err), err);
}

/* What concerns commands of an earlier daemon is no call of the engine. */
void provider_each_kept(struct provider *provider, provider_kept_fn *fn,
                        void *arg)
{
    if (provider->ops->each_kept) {
        provider->ops->each_kept(provider, fn, arg);
    }
}

int provider_adopt(struct provider *provider, const struct adoption *what,
                   const struct command_sink *sink, void *arg, struct err *err)
{
    if (!provider->ops->adopt) {
        return err_set(err, ESRCH, "provider '%s' keeps no commands",
                       provider->ops->name);
    }
    return with_words(provider->ops->adopt(provider, what, sink, arg, err),
                      err);
}

int provider_leave(struct provider *provider, uint64_t number, uint64_t n,
                   struct err *err)
{
    if (!provider->ops->leave) {
        return err_set(err, EOPNOTSUPP, "provider '%s' keeps no commands",
                       provider->ops->name);
    }
    return with_words(provider->ops->leave(provider, number, n, err), err);
}

void provider_settled(struct provider *provider, uint64_t number, uint64_t n)
{
    if (provider->ops->settled) {
        provider->ops->settled(provider, number, n);
    }
}

bool provider_has_processes(struct provider *provider, uint64_t number)
{
    return provider->ops->has_processes &&
           provider->ops->has_processes(provider, number);
}

bool provider_left(struct provider *provider, const char *dir)
{
    return provider->ops->left && provider->ops->left(provider, dir);
}

int provider_root(struct provider *provider, const struct sandbox *sandbox,
                  struct provider_root *out, struct err *err)
{
    if (!provider->ops->root) {
        return err_set(err, EOPNOTSUPP, "provider '%s' has no directory",
                       provider->ops->name);
    }
    provider_begin(provider, OP_ROOT);
    return provider_end(provider, OP_ROOT,
                        provider->ops->root(provider, sandbox, out, err), err);
}

int provider_changes(struct provider *provider, const struct sandbox *sandbox,
                     const struct provider_span *span,
                     const struct limits *limits, provider_change_fn *fn,
                     void *arg, struct err *err)
{
    if (!provider->ops->changes) {
        return err_set(err, EOPNOTSUPP, "provider '%s' cannot tell changes",
                       provider->ops->name);
    }
    provider_begin(provider, OP_CHANGES);
    return provider_end(
        provider, OP_CHANGES,
        provider->ops->changes(provider, sandbox, span, limits, fn, arg, err),
        err);
}

int provider_run(struct provider *provider, const struct sandbox *sandbox,
                 const struct provider_script *script,
                 const struct limits *limits, struct buf *out, int *code,
                 struct err *err)
{
    if (!provider->ops->run) {
        return provider_cannot(provider, OP_RUN, err);
    }
    provider_begin(provider, OP_RUN);
    return provider_end(
        provider, OP_RUN,
        provider->ops->run(provider, sandbox, script, limits, out, code, err),
        err);
}

int provider_read_file(struct provider *provider, const struct sandbox *sandbox,
                       const char *path, int fd, const struct limits *limits,
                       struct err *err)
{
    if (!provider->ops->read_file) {
        return provider_cannot(provider, OP_FILES, err);
    }
    provider_begin(provider, OP_FILES);
    return provider_end(
        provider, OP_FILES,
        provider->ops->read_file(provider, sandbox, path, fd, limits, err),
        err);
}

int provider_write_file(struct provider *provider,
                        const struct sandbox *sandbox, const char *path, int fd,
                        const struct limits *limits, struct err *err)
{
    if (!provider->ops->write_file) {
        return provider_cannot(provider, OP_FILES, err);
    }
    provider_begin(provider, OP_FILES);
    return provider_end(
        provider, OP_FILES,
        provider->ops->write_file(provider, sandbox, path, fd, limits, err),
        err);
}

/* Asked at each write: not counted. */
int provider_room(struct provider *provider, uint64_t number, struct err *err)
{
    return provider->ops->room ? provider->ops->room(provider, number, err) : 0;
}

/* Asked while files are looked at: not counted. */
bool provider_quiet(struct provider *provider, uint64_t number)
{
    return provider->ops->quiet && provider->ops->quiet(provider, number);
}

int provider_limits(struct provider *provider, const struct sandbox *sandbox,
                    struct buf *out, struct err *err)
{
    if (!provider->ops->limits) {
        int rc = buf_add(out, "{}", 2);

        return rc < 0 ? err_set(err, -rc, "limits") : 0;
    }
    /* No call: it asks no engine and waits for no turn. */
    return with_words(provider->ops->limits(provider, sandbox, out, err), err);
}

void provider_files_begin(struct provider *provider)
{
    provider_begin(provider, OP_FILES);
}

ssize_t provider_files_end(struct provider *provider, ssize_t rc,
                           struct err *err)
{
    int failed = provider_end(provider, OP_FILES, rc < 0 ? (int)rc : 0, err);

    return failed < 0 ? failed : rc;
}

void provider_stats(const struct provider *provider,
                    void (*fn)(void *arg, const char *op, uint64_t calls,
                               uint64_t failures),
                    void *arg)
{
    for (int op = 0; op < OP_COUNT; op++) {
        fn(arg, op_names[op], atomic_load(&provider->calls->calls[op]),
           atomic_load(&provider->calls->failures[op]));
    }
}
