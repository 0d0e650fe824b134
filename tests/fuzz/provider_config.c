/* What providers are told: after core's check the provider can read it. The
 * first byte chooses the provider and who says it. */
#include "tests/fuzz/fuzz.h"

#include "core/config_check.h"
#include "core/provider.h"
#include "providers/jsonl/jsonl.h"
#include "providers/local/quota.h"

static void read_it(const char *provider, const char *text)
{
    struct program program;
    struct wire_quota quota;
    struct err err = ERR_INIT;
    int rc = 0;

    if (strcmp(provider, "jsonl") == 0) {
        rc = program_read(text, &program, &err);
        if (rc == 0) {
            program_done(&program);
        }
    } else if (strcmp(provider, "local") == 0) {
        rc = quota_read(text, &quota, &err);
    }
    DEMAND_ERR(rc, &err);
    DEMAND(rc == 0 || strstr(err.msg, "needs a 'program', which a profile"));
}

static void check(const struct provider_ops *ops, bool trusted, char *text)
{
    const struct config_places places = {
        .state = "/nowhere/state", .mount = "/nowhere/mount", .base = "/usr"};
    const struct config_rules rules = {
        .keys = ops->keys, .trusted = trusted, .places = &places};
    struct config config;
    struct err err = ERR_INIT;
    int rc;

    DEMAND(config_default(ops->name, &config, &err) == 0);
    free(config.provider_config);
    config.provider_config = text;
    rc = config_check(&config, &rules, &err);
    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        read_it(ops->name, config.provider_config);
    }
    config_done(&config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = ERR_INIT;
    struct js *js = NULL;
    size_t count = 0;
    char *text;
    bool fits;

    while (provider_table[count]) {
        count++;
    }
    if (!size) {
        return 0;
    }
    /* What is not an object comes no further than core/config. */
    text = fuzz_text(data + 1, size - 1);
    fits = js_parse(text, strlen(text), &js, &err) == 0 && js_is_object(js);
    js_free(js);
    if (!fits) {
        free(text);
        return 0;
    }
    check(provider_table[data[0] / 2 % count], data[0] & 1, text);
    return 0;
}
