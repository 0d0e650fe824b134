/* Session configs. See config.h. */
#include "core/config.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"

#include <string.h>

enum {
    CONFIG_TEXT_MAX = 1024 * 1024
};

int config_default(const char *provider, struct config *out, struct err *err)
{
    struct config config = {
        .provider = strdup(provider),
        .provider_config = strdup("{}"),
    };

    if (!config.provider || !config.provider_config) {
        config_done(&config);
        return err_set(err, ENOMEM, "out of memory");
    }
    *out = config;
    return 0;
}

/* The text of provider_config, `{}` where there is none. */
static int read_provider_config(const struct js *js, char **out,
                                struct err *err)
{
    struct js *inner = js_get(js, "provider_config");
    struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    int rc = 0;

    if (inner && !js_is_object(inner)) {
        rc = err_set(err, EINVAL, "'provider_config' must be an object");
    } else if (inner && js_write(inner, &text) < 0) {
        rc = err_set(err, ENOMEM, "out of memory");
    }
    js_free(inner);
    if (rc == 0) {
        *out = strdup(text.size ? buf_str(&text) : "{}");
        rc = *out ? 0 : err_set(err, ENOMEM, "out of memory");
    }
    buf_done(&text);
    return rc;
}

static int read_config(const struct js *js, struct config *out, struct err *err)
{
    const char *provider;

    if (!js_is_object(js)) {
        return err_set(err, EINVAL, "session_sandbox config must be an object");
    }
    provider = js_text(js, "provider");
    if (!provider || provider[strspn(provider, " \t\r\n")] == '\0') {
        return err_set(err, EINVAL,
                       "session_sandbox config requires non-empty 'provider'");
    }
    out->provider = strdup(provider);
    if (!out->provider) {
        return err_set(err, ENOMEM, "out of memory");
    }
    return read_provider_config(js, &out->provider_config, err);
}

int config_parse(const char *text, struct config *out, struct err *err)
{
    struct config config = {NULL, NULL};
    struct js *js = NULL;
    int rc = js_parse(text, strlen(text), &js, err);

    if (rc < 0) {
        return err_wrap(err, rc, "Invalid session_sandbox config");
    }
    rc = read_config(js, &config, err);
    js_free(js);
    if (rc < 0) {
        config_done(&config);
        return rc;
    }
    *out = config;
    return 0;
}

int config_text(const struct config *config, char **out, struct err *err)
{
    struct js *js = js_object();
    struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    int rc;

    js_set_text(js, "provider", config->provider);
    js_set_raw(js, "provider_config", config->provider_config);
    rc = js_write(js, &text);
    js_free(js);
    if (rc < 0) {
        buf_done(&text);
        return err_set(err, -rc, "cannot write the config");
    }
    *out = text.data;
    return 0;
}

void config_done(struct config *config)
{
    free(config->provider);
    free(config->provider_config);
    config->provider = NULL;
    config->provider_config = NULL;
}
