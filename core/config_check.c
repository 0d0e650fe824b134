/* The check of a provider_config. See config_check.h. */
#include "core/config_check.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/path.h"

#include <inttypes.h>
#include <string.h>

enum {
    TEXT_MAX = 16 * CONFIG_TEXT_MAX,
    WORDS_MAX = 1024,
};

#define OPERATORS                                                              \
    "is the operator's: it is taken from profiles, or with -o trust=config"

struct check {
    const struct config *config;
    const struct config_rules *rules;
    struct js *current; /* NULL: none. */
};

/* ---- Types ---- */

static bool is_text(const struct js *value)
{
    const char *text;
    size_t size;

    if (js_type(value) != JS_TEXT) {
        return false;
    }
    text = js_bytes(value, &size);
    return strlen(text) == size;
}

static int demand_text(void *arg, const char *key, const struct js *value,
                       struct err *err)
{
    (void)arg;
    (void)key;
    return is_text(value) ? 0 : err_set(err, EINVAL, "no string");
}

static bool all_texts(const struct js *value)
{
    struct err ignored = ERR_INIT;

    return js_each(value, demand_text, NULL, &ignored) == 0;
}

static bool is_word(const struct config_key *key, const struct js *value)
{
    size_t size;
    const char *text = is_text(value) ? js_bytes(value, &size) : NULL;

    for (size_t i = 0; text && key->words[i]; i++) {
        if (strcmp(key->words[i], text) == 0) {
            return true;
        }
    }
    return false;
}

static bool may_narrow(const struct config_rules *rules,
                       const struct config_key *key)
{
    return rules->places->base && key->type == CONFIG_PATH &&
           strcmp(key->name, CONFIG_BASE) == 0;
}

static bool is_path(const struct config_rules *rules,
                    const struct config_key *key, const struct js *value)
{
    size_t size;
    const char *text = is_text(value) ? js_bytes(value, &size) : "";

    return text[0] == '/' || (text[0] && may_narrow(rules, key));
}

static bool fits(const struct config_rules *rules, const struct config_key *key,
                 const struct js *value)
{
    switch (key->type) {
    case CONFIG_TEXT:
        return is_text(value);
    case CONFIG_WORD:
        return is_word(key, value);
    case CONFIG_PATH:
        return is_path(rules, key, value);
    case CONFIG_BOOL:
        return js_type(value) == JS_BOOL;
    case CONFIG_INT:
        return js_type(value) == JS_INT && js_int(value) >= key->min &&
               js_int(value) <= key->max;
    case CONFIG_TEXTS:
        return js_type(value) == JS_ARRAY && all_texts(value);
    case CONFIG_MAP:
        break;
    }
    return js_type(value) == JS_OBJECT && all_texts(value);
}

static int say_words(const struct config_key *key, struct buf *out)
{
    int rc = buf_printf(out, "one of");

    for (size_t i = 0; key->words[i] && rc == 0; i++) {
        rc = buf_printf(out, "%s '%s'", i ? "," : "", key->words[i]);
    }
    return rc;
}

int config_key_says(const struct config_key *key, struct buf *out)
{
    switch (key->type) {
    case CONFIG_TEXT:
        return buf_printf(out, "a string");
    case CONFIG_WORD:
        return say_words(key, out);
    case CONFIG_PATH:
        return buf_printf(out, "an absolute path");
    case CONFIG_BOOL:
        return buf_printf(out, "true or false");
    case CONFIG_INT:
        return buf_printf(out, "an integer from %" PRId64 " to %" PRId64 "%s%s",
                          key->min, key->max, key->unit ? " " : "",
                          key->unit ? key->unit : "");
    case CONFIG_TEXTS:
        return buf_printf(out, "an array of strings");
    case CONFIG_MAP:
        break;
    }
    return buf_printf(out, "an object of strings");
}

static int misfit(const struct check *check, const struct config_key *key,
                  struct err *err)
{
    struct buf words = BUF_INIT(WORDS_MAX);
    int rc = config_key_says(key, &words);

    rc = rc < 0 ? err_no_memory(err)
                : err_set(err, EINVAL,
                          "Invalid provider_config of '%s': '%s' must be %s",
                          check->config->provider, key->name, buf_str(&words));
    buf_done(&words);
    return rc;
}

/* ---- Trust ---- */

static bool is_current(const struct check *check, const char *name,
                       const struct js *value)
{
    struct js *current = check->current ? js_get(check->current, name) : NULL;
    bool same = current && js_equal(current, value);

    js_free(current);
    return same;
}

/* Whether a value goes no further than the default. */
static int within_default(const struct config_key *key, const struct js *value,
                          bool *out, struct err *err)
{
    struct js *fallback = NULL;
    int rc;

    *out = false;
    if (!key->fallback) {
        return 0;
    }
    rc = js_parse(key->fallback, strlen(key->fallback), &fallback, err);
    if (rc == 0) {
        *out = key->type == CONFIG_INT ? js_int(value) <= js_int(fallback)
                                       : js_equal(value, fallback);
        js_free(fallback);
    }
    return rc;
}

static int check_trust(const struct check *check, const struct config_key *key,
                       const struct js *value, struct err *err)
{
    bool within = false;
    int rc;

    if (check->rules->trusted || key->trust == CONFIG_ANYONE ||
        is_current(check, key->name, value)) {
        return 0;
    }
    if (key->trust == CONFIG_OPERATOR) {
        return may_narrow(check->rules, key)
                   ? 0
                   : err_set(err, EPERM, "provider_config key '%s' " OPERATORS,
                             key->name);
    }
    rc = within_default(key, value, &within, err);
    if (rc < 0 || within) {
        return rc;
    }
    return err_set(
        err, EPERM,
        "provider_config key '%s' beyond its default, %s%s%s, " OPERATORS,
        key->name, key->fallback ? key->fallback : "none", key->unit ? " " : "",
        key->unit ? key->unit : "");
}

/* ---- Each key ---- */

static const struct config_key *find_key(const struct config_key *keys,
                                         const char *name)
{
    for (; keys && keys->name; keys++) {
        if (strcmp(keys->name, name) == 0) {
            return keys;
        }
    }
    return NULL;
}

static int check_member(void *arg, const char *name, const struct js *value,
                        struct err *err)
{
    const struct check *check = arg;
    const struct config_key *key = find_key(check->rules->keys, name);

    if (!key) {
        return err_set(err, EINVAL,
                       "Invalid provider_config of '%s': unknown key '%.64s'",
                       check->config->provider, name);
    }
    return fits(check->rules, key, value) ? check_trust(check, key, value, err)
                                          : misfit(check, key, err);
}

/* ---- Paths ---- */

static int check_place(const struct config_places *places, const char *path,
                       struct err *err)
{
    /* To ask what the mount shows is a request to ourselves. */
    if (places->mount && path_begins_with(path, places->mount)) {
        return err_set(err, EINVAL, "'%s' lies in the mount", path);
    }
    if (path_lies_in(path, places->state) ||
        path_lies_in(places->state, path)) {
        return err_set(err, EINVAL, "'%s' overlaps the state directory", path);
    }
    return 0;
}

int config_check_place(const struct config_places *places, const char *path,
                       struct err *err)
{
    AUTO_FREE char *whole = NULL;
    int rc = path_resolve(path, places->mount, &whole, err);

    return rc < 0 ? rc : check_place(places, whole, err);
}

static int find_path(const struct check *check, const struct config_key *key,
                     const char *text, char **out, struct err *err)
{
    const struct config_rules *rules = check->rules;
    AUTO_FREE char *path = NULL;
    bool narrow = may_narrow(rules, key) && (!rules->trusted || *text != '/');
    int rc = narrow ? path_beneath(rules->places->base, text, &path, err)
                    : path_resolve(text, rules->places->mount, &path, err);

    if (rc == 0) {
        rc = check_place(rules->places, path, err);
    }
    if (rc < 0) {
        return err_wrap(err, rc, "provider_config key '%s'", key->name);
    }
    *out = TAKE_PTR(path);
    return 0;
}

/* ---- The effective one ---- */

static int set_path(const struct check *check, const struct config_key *key,
                    const struct js *value, struct js *out, struct err *err)
{
    AUTO_FREE char *path = NULL;
    size_t size;
    const char *text = js_bytes(value, &size);
    int rc = 0;

    if (!is_current(check, key->name, value)) {
        rc = find_path(check, key, text, &path, err);
        text = path;
    } else {
        rc = check_place(check->rules->places, text, err);
    }
    if (rc == 0) {
        /* Fails, when it is written, for a name that is not UTF-8. */
        js_set_bytes(out, key->name, text, strlen(text));
    }
    return rc;
}

/* Takes value. */
static int set_value(const struct check *check, const struct config_key *key,
                     struct js *value, struct js *out, struct err *err)
{
    int rc = 0;

    if (!value && key->fallback) {
        js_set_raw(out, key->name, key->fallback);
    } else if (value && key->type == CONFIG_PATH) {
        rc = set_path(check, key, value, out, err);
    } else if (value) {
        js_set(out, key->name, value);
        return 0;
    }
    js_free(value);
    return rc;
}

/* Gives a config another provider_config. */
static int replace(struct config *config, const struct js *js, struct err *err)
{
    struct buf text = BUF_INIT(TEXT_MAX);

    if (js_write(js, &text) < 0) {
        buf_done(&text);
        return err_no_memory(err);
    }
    free(config->provider_config);
    config->provider_config = text.data;
    return 0;
}

static int make_effective(const struct check *check, const struct js *given,
                          struct config *config, struct err *err)
{
    struct js *js = js_object();
    int rc = 0;

    for (const struct config_key *key = check->rules->keys;
         key && key->name && rc == 0; key++) {
        rc = set_value(check, key, js_get(given, key->name), js, err);
    }
    if (rc == 0) {
        rc = replace(config, js, err);
    }
    js_free(js);
    return rc;
}

static int parse(const char *text, struct js **out, struct err *err)
{
    return text ? js_parse(text, strlen(text), out, err) : 0;
}

int config_check(struct config *config, const struct config_rules *rules,
                 struct err *err)
{
    struct check check = {config, rules, NULL};
    struct js *given = NULL;
    int rc = parse(config->provider_config, &given, err);

    if (rc == 0) {
        rc = parse(rules->current, &check.current, err);
    }
    if (rc == 0) {
        rc = js_each(given, check_member, &check, err);
    }
    if (rc == 0) {
        rc = make_effective(&check, given, config, err);
    }
    js_free(check.current);
    js_free(given);
    return rc;
}

int config_fill(struct config *config, const struct config_key *keys,
                struct err *err)
{
    struct js *js = NULL;
    int rc = parse(config->provider_config, &js, err);

    for (; rc == 0 && keys && keys->name; keys++) {
        struct js *value = js_get(js, keys->name);

        if (!value && keys->fallback) {
            js_set_raw(js, keys->name, keys->fallback);
        }
        js_free(value);
    }
    if (rc == 0) {
        rc = replace(config, js, err);
    }
    js_free(js);
    return rc;
}
