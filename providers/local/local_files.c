/* The provider `local`: its slots of files. See local.h. */
#include "providers/local/local.h"

#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/link.h"
#include "providers/local/quota.h"
#include "providers/local/snapshots.h"
#include "providers/local/volume.h"

#include <errno.h>

enum {
    ROOT_MS = 5000 /* For a workspace that is not mounted yet. */
};

static struct local *local_of(struct provider *provider)
{
    return container_of(provider, struct local, base);
}

/* Also a sandbox that does not run is written to through its files. */
static int open_root(struct local *local, const struct sandbox *sandbox,
                     struct err *err)
{
    struct cancel never = CANCEL_NEVER;
    struct limits limits = {.deadline_ms = clock_deadline(ROOT_MS),
                            .cancel = &never};
    struct wire_quota quota;
    int rc = quota_read(sandbox->config, &quota, err);

    if (rc == 0) {
        rc = local_watch(local, sandbox, &quota, err);
    }
    return rc < 0 ? rc : volume_open(local->volumes, sandbox, &limits, err);
}

void local_fill_root(const struct local *local, const struct sandbox *sandbox,
                     struct provider_root *out)
{
    const struct link_ids ids = volume_ids(local->volumes, sandbox);

    *out = (struct provider_root){.fd = -1,
                                  .base = ids.base,
                                  .gid_base = ids.base,
                                  .count = WIRE_ID_COUNT,
                                  .user = WIRE_USER,
                                  .group = WIRE_GROUP,
                                  .path = WIRE_WORKSPACE};
    if (link_one_id(local->link)) {
        out->base = ids.user;
        out->gid_base = ids.group;
        out->count = 1;
        out->user = 0;
        out->group = 0;
    }
}

int local_root(struct provider *provider, const struct sandbox *sandbox,
               struct provider_root *out, struct err *err)
{
    struct local *local = local_of(provider);
    int fd = open_root(local, sandbox, err);

    if (fd < 0) {
        return fd;
    }
    local_fill_root(local, sandbox, out);
    out->fd = fd;
    return 0;
}

int local_changes(struct provider *provider, const struct sandbox *sandbox,
                  const struct provider_span *span, const struct limits *limits,
                  provider_change_fn *fn, void *arg, struct err *err)
{
    const struct snapshots_teller teller = {.fn = fn, .arg = arg};

    return snapshots_changes(local_of(provider)->snapshots, sandbox, span,
                             limits, &teller, err);
}
