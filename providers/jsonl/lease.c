/* What is known of sandboxes. See jsonl.h. */
#include "core/cleanup.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <string.h>

static void free_lease(struct lease *lease)
{
    program_done(&lease->program);
    marks_done(lease);
    free(lease->dir);
    free(lease->session);
    free(lease->id);
    free(lease->workspace);
    free(lease);
}

struct lease *lease_ref(struct jsonl *jsonl, struct lease *lease)
{
    mutex_lock(&jsonl->lock);
    lease->refs++;
    mutex_unlock(&jsonl->lock);
    return lease;
}

static bool unref_locked(struct lease *lease)
{
    lease->refs--;
    return !lease->refs;
}

void lease_unref(struct jsonl *jsonl, struct lease *lease)
{
    bool last;

    if (!lease) {
        return;
    }
    mutex_lock(&jsonl->lock);
    last = unref_locked(lease);
    mutex_unlock(&jsonl->lock);
    if (last) {
        free_lease(lease);
    }
}

static struct lease *find(struct jsonl *jsonl, const struct sandbox *sandbox)
    REQUIRES(jsonl->lock)
{
    const char *id = sandbox->instance->external_id;

    list_each(node, &jsonl->leases)
    {
        struct lease *lease = container_of(node, struct lease, link);

        if (lease->number == sandbox->number && id &&
            strcmp(lease->id, id) == 0) {
            return lease;
        }
    }
    return NULL;
}

/* Puts a new one among the known, unless another was quicker. Takes it; the
 * reference that is returned is the caller's. */
static struct lease *keep_lease(struct jsonl *jsonl,
                                const struct sandbox *sandbox,
                                struct lease *lease)
{
    struct lease *known;

    mutex_lock(&jsonl->lock);
    known = find(jsonl, sandbox);
    if (!known) {
        known = TAKE_PTR(lease);
        known->refs = 1;
        list_add(&jsonl->leases, &known->link);
    }
    known->refs++;
    mutex_unlock(&jsonl->lock);
    if (lease) {
        free_lease(lease);
    }
    return known;
}

/* Forgets all that a session had. */
void lease_drop_all(struct jsonl *jsonl, uint64_t number)
{
    mutex_lock(&jsonl->lock);
    list_each_safe(node, &jsonl->leases)
    {
        struct lease *lease = container_of(node, struct lease, link);

        if (lease->number == number) {
            list_remove(&lease->link);
            if (unref_locked(lease)) {
                free_lease(lease);
            }
        }
    }
    mutex_unlock(&jsonl->lock);
}

/* From the note; without a session there is nothing to work with. */
static int load_lease(const struct sandbox *sandbox, const struct note *note,
                      struct lease *lease, struct err *err)
{
    const struct instance *instance = sandbox->instance;
    int rc = program_read(sandbox->config, &lease->program, err);

    if (rc < 0) {
        return rc;
    }
    lease->number = sandbox->number;
    lease->dir = strdup(sandbox->dir);
    lease->session = strdup(note->session);
    lease->id = strdup(instance->external_id);
    lease->workspace =
        strdup(instance->workspace_path ? instance->workspace_path : "/");
    return lease->dir && lease->session && lease->id && lease->workspace
               ? marks_find(lease, err)
               : err_no_memory(err);
}

static int new_lease(struct jsonl *jsonl, const struct sandbox *sandbox,
                     const struct note *note, struct lease **out,
                     struct err *err)
{
    struct lease *lease = calloc(1, sizeof(*lease));
    int rc;

    if (!lease) {
        return err_no_memory(err);
    }
    list_init(&lease->link);
    list_init(&lease->endings);
    list_init(&lease->lost);
    rc = load_lease(sandbox, note, lease, err);
    if (rc < 0) {
        free_lease(lease);
        return rc;
    }
    *out = keep_lease(jsonl, sandbox, lease);
    return 0;
}

int lease_get(struct jsonl *jsonl, const struct sandbox *sandbox,
              struct lease **out, struct err *err)
{
    struct note note = {.group = NULL};
    struct lease *lease;
    int rc;

    mutex_lock(&jsonl->lock);
    lease = find(jsonl, sandbox);
    if (lease) {
        lease->refs++;
    }
    mutex_unlock(&jsonl->lock);
    if (lease) {
        *out = lease;
        return 0;
    }
    rc = note_read(sandbox, &note, err);
    if (rc == 0 && (!note.session || !sandbox->instance->external_id)) {
        rc = err_set(err, ESTALE, "nothing is known of the sandbox");
    }
    if (rc == 0) {
        rc = new_lease(jsonl, sandbox, &note, out, err);
    }
    note_done(&note);
    return rc;
}

int lease_use(struct jsonl *jsonl, const struct sandbox *sandbox,
              const struct limits *limits, struct lease **out, struct err *err)
{
    struct lease *lease;
    int rc = lease_get(jsonl, sandbox, &lease, err);

    if (rc < 0) {
        return rc;
    }
    rc = lease_clean(jsonl, lease, limits, err);
    if (rc < 0) {
        rc = lease_failed(jsonl, lease, rc, limits, err);
        lease_unref(jsonl, lease);
        return rc;
    }
    *out = lease;
    return 0;
}

/* ---- Whether it is still there ---- */

/* A command that does nothing: whoever runs it has the session. It is asked
 * only where another call has just been made, so it wakes nothing. */
int lease_probe(struct jsonl *jsonl, const struct lease *lease,
                const struct limits *limits, struct err *err)
{
    static const char *const none[] = {NULL};
    const struct provider_script script = {.text = ":", .args = none};
    struct buf out = BUF_INIT(0);
    int code;
    int rc = quick_run(jsonl,
                       &(struct quick_script){.program = &lease->program,
                                              .session = lease->session,
                                              .script = &script},
                       limits, &out, &code, err);

    buf_done(&out);
    return rc;
}

bool lease_may_be_lost(int rc)
{
    return rc == -EIO || lease_is_lost(rc);
}

/* A command that does nothing has nothing else to miss. */
bool lease_is_lost(int rc)
{
    return rc == -ESTALE || rc == -ENOENT;
}

int lease_failed(struct jsonl *jsonl, struct lease *lease, int rc,
                 const struct limits *limits, struct err *err)
{
    struct err why = ERR_INIT;
    int again;

    if (!lease_may_be_lost(rc)) {
        return rc;
    }
    again = rc == -ESTALE ? rc : lease_probe(jsonl, lease, limits, &why);
    atomic_store(&lease->doubtful, lease_is_lost(again));
    if (lease_is_lost(again)) {
        char words[ERR_MSG_SIZE];

        memcpy(words, rc == -ESTALE ? err->msg : why.msg, sizeof(words));
        return err_set(err, ESTALE, "the engine has lost the session: %s",
                       words);
    }
    err->code = EIO;
    return -EIO;
}
