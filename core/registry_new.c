/* Sessions by a write to `new`. See registry.h. */
#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/registry_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    RANDOM_SIZE = 8,
    ATTEMPTS = 16, /* At an id that is free. */
    SHOWN = 64,    /* Of one that is refused. */
};

static int random_id(char id[SESSION_ID_SIZE], struct err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[RANDOM_SIZE];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        return err_errno(err, "make an id");
    }
    id[0] = 's';
    for (size_t i = 0; i < RANDOM_SIZE; i++) {
        id[i + 1] = letters[bytes[i] % (sizeof(letters) - 1)];
    }
    id[RANDOM_SIZE + 1] = '\0';
    return 0;
}

/* ---- What was asked for ---- */

struct request {
    char id[SESSION_ID_SIZE]; /* "": any. */
    struct config config;
};

static int make(struct registry *registry, struct request *request,
                const struct caller *caller, struct err *err)
{
    bool any = request->id[0] == '\0';
    int rc = -EEXIST;

    for (int i = 0; rc == -EEXIST && i < (any ? ATTEMPTS : 1); i++) {
        rc = any ? random_id(request->id, err) : 0;
        if (rc == 0) {
            rc = registry_add(registry, request->id, &request->config, caller,
                              NULL, err);
        }
    }
    return rc;
}

static int set_id(struct request *request, const char *id, size_t size,
                  struct err *err)
{
    const bool fits = size < sizeof(request->id) && !memchr(id, '\0', size);
    int rc;

    (void)snprintf(request->id, sizeof(request->id), "%.*s",
                   fits ? (int)size : 0, id);
    rc = registry_check_id(request->id, err);
    return rc < 0 ? err_wrap(err, rc, "id '%.*s'", SHOWN, id) : 0;
}

/* ---- PROFILE [ID] ---- */

static int take_profile(const struct registry *registry, const char *name,
                        struct request *out, struct err *err)
{
    const struct profile *profile = registry_profile(registry, name);

    return profile ? config_copy(&profile->config, &out->config, err)
                   : err_set(err, ENOENT, "there is no profile '%.64s'", name);
}

static int read_words(const struct registry *registry, char *text,
                      struct request *out, struct err *err)
{
    char *left = NULL;
    const char *name = strtok_r(text, " \t\r\n", &left);
    const char *id = strtok_r(NULL, " \t\r\n", &left);
    int rc = 0;

    if (!name || strtok_r(NULL, " \t\r\n", &left)) {
        return err_set(err, EINVAL, "write PROFILE [ID], or a config in JSON");
    }
    if (id) {
        rc = set_id(out, id, strlen(id), err);
    }
    return rc < 0 ? rc : take_profile(registry, name, out, err);
}

/* ---- A config ---- */

static int read_id(const struct js *js, struct request *out, bool *has,
                   struct err *err)
{
    struct js *value = js_is_object(js) ? js_get(js, "id") : NULL;
    const char *text = "";
    size_t size = 0;
    int rc = 0;

    *has = value != NULL;
    if (value && js_type(value) == JS_TEXT) {
        text = js_bytes(value, &size);
    }
    if (value) {
        rc = set_id(out, text, size, err);
    }
    js_free(value);
    return rc;
}

static int read_json(const struct registry *registry, const char *text,
                     size_t size, struct request *out, struct err *err)
{
    const struct profile *profile = registry_profile(registry, "default");
    struct js *js = NULL;
    bool has_id = false;
    int rc = config_json(text, size, &js, err);

    if (rc == 0) {
        rc = read_id(js, out, &has_id, err);
    }
    if (rc == 0) {
        bool none = config_is_none(js) || (has_id && js_count(js) == 1);

        rc = registry_read_config(registry, js, none, &profile->config,
                                  &out->config, err);
    }
    js_free(js);
    return rc;
}

static bool is_json(const char *text)
{
    return strchr("{[\"", text[0]) || strcmp(text, "null") == 0;
}

static int read_request(const struct registry *registry, char *text,
                        size_t size, struct request *out, struct err *err)
{
    if (memchr(text, '\0', size)) {
        return err_set(err, EINVAL, "a NUL byte in it");
    }
    while (size && strchr(" \t\r\n", text[size - 1])) {
        text[--size] = '\0';
    }
    while (size && strchr(" \t\r\n", *text)) {
        text++;
        size--;
    }
    return size && is_json(text) ? read_json(registry, text, size, out, err)
                                 : read_words(registry, text, out, err);
}

int registry_new(struct registry *registry, const char *text, size_t size,
                 const struct caller *caller, char id[SESSION_ID_SIZE],
                 struct err *err)
{
    AUTO_FREE char *copy = NULL;
    struct request request = {.id = ""};
    int rc;

    if (size > CONFIG_TEXT_MAX) {
        return err_set(err, EFBIG, "it is over %d bytes", CONFIG_TEXT_MAX);
    }
    copy = malloc(size + 1);
    if (!copy) {
        return err_no_memory(err);
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    rc = read_request(registry, copy, size, &request, err);
    if (rc == 0) {
        rc = make(registry, &request, caller, err);
        config_done(&request.config);
    }
    if (rc == 0) {
        memcpy(id, request.id, sizeof(request.id));
    }
    return rc;
}

/* ---- By the operator ---- */

static bool starts_from_base(const struct provider_ops *ops)
{
    return ops && (ops->flags & PROVIDER_BASE);
}

/* Writes a base into a provider_config that has none. */
static int set_base(struct config *config, const char *base, struct err *err)
{
    struct buf text = BUF_INIT(CONFIG_TEXT_MAX);
    struct js *js = NULL;
    int rc = js_parse(config->provider_config, strlen(config->provider_config),
                      &js, err);
    bool set = rc == 0 && !js_text(js, CONFIG_BASE);

    if (set) {
        js_set_bytes(js, CONFIG_BASE, base, strlen(base));
        rc = js_write(js, &text);
        rc = rc < 0 ? err_set(err, -rc, "the base cannot be set") : 0;
    }
    if (set && rc == 0) {
        free(config->provider_config);
        config->provider_config = TAKE_PTR(text.data);
    }
    js_free(js);
    buf_done(&text);
    return rc;
}

static int add_by(struct registry *registry, const struct registry_order *order,
                  struct config *config, bool *lacks, struct session **out,
                  struct err *err)
{
    bool can = starts_from_base(registry_ops(registry, config->provider));
    int rc = order->base && can ? set_base(config, order->base, err) : 0;

    *lacks = order->base && !can;
    if (rc == 0) {
        rc = registry_check(registry, config, NULL, err);
    }
    return rc < 0 ? rc
                  : registry_add(registry, order->id, config, order->caller,
                                 out, err);
}

int registry_new_by(struct registry *registry,
                    const struct registry_order *order, bool *lacks,
                    struct session **out, struct err *err)
{
    struct request request = {.id = ""};
    int rc = set_id(&request, order->id, strlen(order->id), err);

    if (rc == 0) {
        rc = take_profile(registry, order->profile, &request, err);
    }
    if (rc == 0) {
        rc = add_by(registry, order, &request.config, lacks, out, err);
        config_done(&request.config);
    }
    return rc;
}
