/* The limits of a sandbox. See quota.h. */
#include "providers/local/quota.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* How a limit is enforced on this machine; NULL: not. */
typedef const char *by_fn(const struct wire_host *host);

static by_fn by_memory;
static by_fn by_pids;
static by_fn by_cpu;
static by_fn by_file_size;
static by_fn by_disk;
static by_fn by_open_files;
static by_fn by_tmp;

static const struct row {
    const char *key;
    size_t offset; /* In struct wire_quota. */
    by_fn *by;
} rows[] = {
    {"memory_bytes", offsetof(struct wire_quota, memory_bytes), by_memory},
    {"pids", offsetof(struct wire_quota, pids), by_pids},
    {"cpu_percent", offsetof(struct wire_quota, cpu_percent), by_cpu},
    {"file_size_bytes", offsetof(struct wire_quota, file_size_bytes),
     by_file_size},
    {"disk_bytes", offsetof(struct wire_quota, disk_bytes), by_disk},
    {"open_files", offsetof(struct wire_quota, open_files), by_open_files},
    {"tmp_bytes", offsetof(struct wire_quota, tmp_bytes), by_tmp},
};

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
        const char *by = rows[i].by(host);

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

static const char *by_memory(const struct wire_host *host)
{
    static const char *const words[] = {
        [WIRE_MEANS_NONE] = NULL,
        [WIRE_MEANS_V1] = "memory controller, cgroup v1",
        [WIRE_MEANS_V2] = "memory controller, cgroup v2",
    };

    return words[host->means[WIRE_CONTROL_MEMORY] % ARRAY_SIZE(words)];
}

static const char *by_pids(const struct wire_host *host)
{
    static const char *const words[] = {
        [WIRE_MEANS_NONE] = "RLIMIT_NPROC of the sandbox's user",
        [WIRE_MEANS_V1] = "pids controller, cgroup v1",
        [WIRE_MEANS_V2] = "pids controller, cgroup v2",
    };

    return words[host->means[WIRE_CONTROL_PIDS] % ARRAY_SIZE(words)];
}

static const char *by_cpu(const struct wire_host *host)
{
    static const char *const words[] = {
        [WIRE_MEANS_NONE] = NULL,
        [WIRE_MEANS_V1] = "cpu controller, cgroup v1",
        [WIRE_MEANS_V2] = "cpu controller, cgroup v2",
    };

    return words[host->means[WIRE_CONTROL_CPU] % ARRAY_SIZE(words)];
}

static const char *by_file_size(const struct wire_host *host)
{
    (void)host;
    return "RLIMIT_FSIZE of each process";
}

static const char *by_disk(const struct wire_host *host)
{
    (void)host;
    return "a look at the disk twice a second: what is beyond it by then stays";
}

static const char *by_open_files(const struct wire_host *host)
{
    (void)host;
    return "RLIMIT_NOFILE of each process";
}

static const char *by_tmp(const struct wire_host *host)
{
    (void)host;
    return "the size of a tmpfs";
}
