/* The limits of a sandbox. See quota.h. */
#include "providers/local/quota.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    MEANS = WIRE_MEANS_V2 + 1
};

static const struct row {
    const char *key;
    size_t offset;             /* In struct wire_quota. */
    enum wire_control control; /* WIRE_CONTROLS: it needs none. */
    const char *by[MEANS];     /* How it is enforced; NULL: not. */
} rows[] = {
    {"memory_bytes",
     offsetof(struct wire_quota, memory_bytes),
     WIRE_CONTROL_MEMORY,
     {[WIRE_MEANS_V1] = "memory controller, cgroup v1",
      [WIRE_MEANS_V2] = "memory controller, cgroup v2"}},
    {"pids",
     offsetof(struct wire_quota, pids),
     WIRE_CONTROL_PIDS,
     {[WIRE_MEANS_NONE] = "RLIMIT_NPROC of the sandbox's user",
      [WIRE_MEANS_V1] = "pids controller, cgroup v1",
      [WIRE_MEANS_V2] = "pids controller, cgroup v2"}},
    {"cpu_percent",
     offsetof(struct wire_quota, cpu_percent),
     WIRE_CONTROL_CPU,
     {[WIRE_MEANS_V1] = "cpu controller, cgroup v1",
      [WIRE_MEANS_V2] = "cpu controller, cgroup v2"}},
    {"file_size_bytes",
     offsetof(struct wire_quota, file_size_bytes),
     WIRE_CONTROLS,
     {"RLIMIT_FSIZE of each process"}},
    {"disk_bytes",
     offsetof(struct wire_quota, disk_bytes),
     WIRE_CONTROLS,
     {"a look at the disk twice a second: what is beyond it by then stays"}},
    {"open_files",
     offsetof(struct wire_quota, open_files),
     WIRE_CONTROLS,
     {"RLIMIT_NOFILE of each process"}},
    {"tmp_bytes",
     offsetof(struct wire_quota, tmp_bytes),
     WIRE_CONTROLS,
     {"the size of a tmpfs"}},
};

/* On this machine. */
static const char *means_of(const struct row *row, const struct wire_host *host)
{
    unsigned means = row->control == WIRE_CONTROLS ? WIRE_MEANS_NONE
                                                   : host->means[row->control];

    return row->by[means % MEANS];
}

static int64_t *member(struct wire_quota *quota, const struct row *row)
{
    return (int64_t *)(void *)((char *)quota + row->offset);
}

static int64_t value_of(const struct wire_quota *quota, const struct row *row)
{
    int64_t value;

    memcpy(&value, (const char *)quota + row->offset, sizeof(value));
    return value;
}

static const struct config_key *key_of(const struct row *row)
{
    const struct config_key *key = local_keys;

    while (strcmp(key->name, row->key) != 0) {
        key++;
    }
    return key;
}

static int read_row(const struct js *js, const struct row *row, int64_t *out,
                    struct err *err)
{
    const struct config_key *key = key_of(row);
    struct js *value = js_get(js, row->key);
    int rc = 0;

    if (!value) {
        *out = strtoll(key->fallback, NULL, 10);
    } else if (js_type(value) == JS_INT && js_int(value) >= key->min &&
               js_int(value) <= key->max) {
        *out = js_int(value);
    } else {
        rc = err_set(err, EINVAL,
                     "%s must be an integer from %" PRId64 " to %" PRId64,
                     key->name, key->min, key->max);
    }
    js_free(value);
    return rc;
}

int quota_read(const char *config, struct wire_quota *out, struct err *err)
{
    struct wire_quota quota;
    struct js *js;
    int rc = js_parse(config, strlen(config), &js, err);

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(rows); i++) {
        rc = read_row(js, &rows[i], member(&quota, &rows[i]), err);
    }
    js_free(js);
    if (rc == 0) {
        *out = quota;
    }
    return rc;
}

int quota_tell(const struct wire_quota *quota, const struct wire_host *host,
               const char *why, struct buf *out, struct err *err)
{
    struct js *all = js_object();
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct js *one = js_object();
        const char *by = means_of(&rows[i], host);

        js_set_int(one, "value", value_of(quota, &rows[i]));
        js_set_text(one, "by", by);
        if (!by) {
            js_set_text(one, "why", why);
        }
        js_set(all, rows[i].key, one);
    }
    rc = js_write(all, out);
    js_free(all);
    return rc < 0 ? err_set(err, -rc, "limits") : 0;
}
