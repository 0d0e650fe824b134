/* The registry's counters. See registry.h. */
#include "core/metrics.h"
#include "core/registry_priv.h"

/* What a walk over a provider's counters adds to. */
struct counters {
    struct buf *out;
    const char *provider;
    bool failures; /* Which of the two. */
    int rc;
};

static void tell_counter(void *arg, const char *op, uint64_t calls,
                         uint64_t failures)
{
    struct counters *counters = arg;

    if (counters->rc == 0) {
        counters->rc = buf_printf(
            counters->out,
            "sessionfs_provider_%s_total{provider=\"%s\","
            "operation=\"%s\"} %llu\n",
            counters->failures ? "failures" : "calls", counters->provider, op,
            (unsigned long long)(counters->failures ? failures : calls));
    }
}

static int tell_providers(struct registry *registry, bool failures,
                          struct buf *out)
{
    struct counters counters = {.out = out, .failures = failures};

    counters.rc =
        failures
            ? metrics_begin(out, "counter", "sessionfs_provider_failures_total",
                            "Calls of an engine that failed.")
            : metrics_begin(out, "counter", "sessionfs_provider_calls_total",
                            "Calls of an engine.");
    list_each(node, &registry->providers)
    {
        const char *name =
            container_of(node, struct registry_provider, link)->ops->name;
        struct provider *provider = registry_provider(registry, name);

        if (provider) {
            counters.provider = name;
            provider_stats(provider, tell_counter, &counters);
        }
    }
    return counters.rc;
}

/* As recorded: what an engine would say now is not asked for. */
static int tell_sessions(const struct store_counts *counts, struct buf *out)
{
    static const char name[] = "sessionfs_sessions_by_status";
    uint64_t left = counts->sessions;
    int rc = metrics_one(out, "gauge", "sessionfs_sessions", "All sessions.",
                         counts->sessions);

    if (rc == 0) {
        rc = metrics_begin(out, "gauge", name,
                           "Sessions by their recorded status.");
    }
    for (int i = SESSION_STARTING; i <= SESSION_UNREACHABLE && rc == 0; i++) {
        rc = metrics_labelled(out, name, "status",
                              session_status_name((enum session_status)i),
                              counts->by_status[i]);
        left -= counts->by_status[i];
    }
    if (rc == 0) {
        rc = metrics_labelled(out, name, "status",
                              session_status_name(SESSION_ABSENT), left);
    }
    return rc < 0 ? rc
                  : metrics_one(out, "gauge", "sessionfs_deletions_pending",
                                "Sandboxes whose engine has not confirmed "
                                "that they are deleted.",
                                counts->by_status[SESSION_DELETING]);
}

static int tell_commands(struct registry *registry,
                         const struct store_counts *counts, struct buf *out)
{
    int rc = metrics_one(out, "gauge", "sessionfs_commands_running",
                         "Commands that run.", counts->running);

    if (rc == 0) {
        rc = metrics_one(out, "gauge", "sessionfs_commands_queued",
                         "Commands that wait for their turn.", counts->queued);
    }
    return rc < 0 ? rc
                  : metrics_one(out, "counter", "sessionfs_commands_total",
                                "Commands since the daemon started.",
                                atomic_load(&registry->commands));
}

static int tell_work(struct registry *registry, struct buf *out)
{
    uint64_t loaded, jobs;
    int rc;

    mutex_lock(&registry->lock);
    loaded = registry->loaded;
    jobs = registry->jobs;
    mutex_unlock(&registry->lock);
    rc = metrics_one(out, "gauge", "sessionfs_sessions_loaded",
                     "Sessions in memory.", loaded);
    return rc < 0 ? rc
                  : metrics_one(out, "gauge", "sessionfs_jobs",
                                "Changes of sessions that are queued or under "
                                "way.",
                                jobs);
}

int registry_stats(struct registry *registry, struct buf *out, struct err *err)
{
    struct store_counts counts;
    int rc = store_count(registry->store, &counts, err);

    if (rc < 0) {
        return rc;
    }
    rc = tell_sessions(&counts, out);
    if (rc == 0) {
        rc = tell_commands(registry, &counts, out);
    }
    if (rc == 0) {
        rc = tell_work(registry, out);
    }
    if (rc == 0) {
        rc = tell_providers(registry, false, out);
    }
    if (rc == 0) {
        rc = tell_providers(registry, true, out);
    }
    return rc < 0 ? err_set(err, -rc, "cannot write the counters") : 0;
}
