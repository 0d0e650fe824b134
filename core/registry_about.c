/* What a registry tells of its profiles and providers. See registry.h. */
#include "core/buf.h"
#include "core/registry_priv.h"

#include <errno.h>

static const struct {
    enum provider_flags flag;
    const char *text;
} capabilities[] = {
    {PROVIDER_FILES_WHEN_PAUSED, "files of a paused sandbox can be used"},
    {PROVIDER_SPLIT_STDERR, "stdout and stderr of commands come apart"},
    {PROVIDER_STDIN, "commands can be given input"},
    {PROVIDER_BACKGROUND, "processes that commands leave behind live on"},
    {PROVIDER_MEMORY_KEPT, "a pause keeps processes"},
    {PROVIDER_SERIAL, "one call of the engine at a time"},
};

static const char *const trust_words[] = {
    [CONFIG_ANYONE] = "anyone",
    [CONFIG_UP_TO] = "anyone up to the default, beyond it the operator",
    [CONFIG_OPERATOR] = "the operator",
};

static const struct provider_ops *ops_at(const struct registry *registry,
                                         uint64_t number)
{
    uint64_t i = 0;

    while (registry->table[i] && i + 1 < number) {
        i++;
    }
    return number ? registry->table[i] : NULL;
}

static const struct profile *profile_at(const struct registry *registry,
                                        uint64_t number)
{
    return number && number <= registry->profile_count
               ? &registry->profiles[number - 1]
               : NULL;
}

const char *registry_name(const struct registry *registry,
                          enum registry_list list, uint64_t number)
{
    const struct profile *profile;
    const struct provider_ops *ops;

    if (list == REGISTRY_PROFILES) {
        profile = profile_at(registry, number);
        return profile ? profile->name : NULL;
    }
    ops = ops_at(registry, number);
    return ops ? ops->name : NULL;
}

static int tell_state(struct registry *registry, const char *name,
                      struct buf *out)
{
    struct err err = ERR_INIT;

    if (registry_no_provider(registry, name, &err) < 0) {
        return buf_printf(out, "state: it cannot be used: %s\n", err.msg);
    }
    return buf_printf(out, "state: %s\n",
                      registry_provider(registry, name)
                          ? "open"
                          : "not open yet; its first session opens it");
}

static int tell_capabilities(const struct provider_ops *ops, struct buf *out)
{
    int rc = buf_printf(out, "\nCapabilities\n");

    for (size_t i = 0; i < ARRAY_SIZE(capabilities) && rc == 0; i++) {
        rc = buf_printf(out, "    %-3s  %s\n",
                        ops->flags & capabilities[i].flag ? "yes" : "no",
                        capabilities[i].text);
    }
    if (rc == 0) {
        rc = buf_printf(out, "    %-3s  checkpoints\n",
                        ops->checkpoint || ops->snapshots ? "yes" : "no");
    }
    return rc;
}

static int tell_key(const struct config_key *key, struct buf *out)
{
    int rc = buf_printf(out, "    %s: ", key->name);

    if (rc == 0) {
        rc = config_key_says(key, out);
    }
    if (rc == 0) {
        rc = buf_printf(out,
                        "\n        %s.\n"
                        "        default: %s; set by: %s\n",
                        key->text, key->fallback ? key->fallback : "none",
                        trust_words[key->trust]);
    }
    return rc;
}

static int tell_provider(struct registry *registry,
                         const struct provider_ops *ops, struct buf *out)
{
    const struct config_key *key = ops->keys;
    int rc = buf_printf(out, "%s: %s\n", ops->name, ops->summary);

    if (rc == 0) {
        rc = tell_state(registry, ops->name, out);
    }
    if (rc == 0) {
        rc = tell_capabilities(ops, out);
    }
    if (rc == 0) {
        rc = buf_printf(out, "\nKeys of provider_config\n%s",
                        key && key->name ? "" : "    none\n");
    }
    for (; rc == 0 && key && key->name; key++) {
        rc = tell_key(key, out);
    }
    return rc;
}

int registry_about(struct registry *registry, enum registry_list list,
                   uint64_t number, struct buf *out, struct err *err)
{
    const struct profile *profile = profile_at(registry, number);
    const struct provider_ops *ops = ops_at(registry, number);
    int rc = -ENOENT;

    if (list == REGISTRY_PROFILES && profile) {
        rc = buf_printf(out, "%s", profile->text);
    } else if (list == REGISTRY_PROVIDERS && ops) {
        rc = tell_provider(registry, ops, out);
    }
    return rc < 0 ? err_set(err, -rc, "cannot tell of it") : 0;
}
