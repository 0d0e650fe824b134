/* A session's config: what is read is written so that it reads the same. */
#include "tests/fuzz/fuzz.h"

#include "core/config.h"
#include "core/json.h"

static void write_and_read(const struct config *config)
{
    struct config again;
    struct err err = ERR_INIT;
    char *first = NULL;
    char *second = NULL;

    DEMAND(config->provider && config->provider_config);
    DEMAND(config_text(config, &first, &err) == 0);
    DEMAND(config_parse(first, &again, &err) == 0);
    DEMAND(config_text(&again, &second, &err) == 0);
    DEMAND(strcmp(first, second) == 0);
    config_done(&again);
    free(first);
    free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct err err = ERR_INIT;
    struct js *js = NULL;
    char *text = fuzz_text(data, size);
    int rc = config_json(text, size, &js, &err);

    DEMAND_ERR(rc, &err);
    if (rc == 0) {
        (void)config_is_none(js);
        rc = config_read(js, &config, &err);
        DEMAND_ERR(rc, &err);
        if (rc == 0) {
            write_and_read(&config);
            config_done(&config);
        }
        js_free(js);
    }
    free(text);
    return 0;
}
