/* Session configs. See config.h. */
#include "core/config.h"

#include "core/buf.h"
#include "core/cleanup.h"
#include "core/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* As written: that of a read one may be longer, by escapes and defaults. */
    WRITTEN_MAX = 16 * CONFIG_TEXT_MAX,
    DAY_S = 24 * 3600,
    DAY_MS = DAY_S * 1000,
};

/* A field that is a number or a bool. */
struct field {
    const char *name;
    size_t offset;
    bool is_bool;
    int64_t min;
    int64_t max;
    int64_t fallback;
};

#define NUMBER(member_, min_, max_, fallback_)                                 \
    {                                                                          \
        .name = #member_, .offset = offsetof(struct config, member_),          \
        .min = (min_), .max = (max_), .fallback = (fallback_)                  \
    }
#define BOOL(member_, fallback_)                                               \
    {                                                                          \
        .name = #member_, .offset = offsetof(struct config, member_),          \
        .is_bool = true, .fallback = (fallback_)                               \
    }

static const struct field fields[] = {
    BOOL(auto_start, true),
    BOOL(idle_pause_enabled, true),
    /* Below 1 has words of its own, and comes after what is not of a type. */
    NUMBER(idle_pause_after_seconds, INT64_MIN, INT32_MAX, 180),
    NUMBER(exec_timeout_ms, 0, INT32_MAX, 0),
    NUMBER(create_timeout_ms, 1, DAY_MS, 300000),
    NUMBER(call_timeout_ms, 1, DAY_MS, 60000),
    NUMBER(checkpoints_keep, 0, INT32_MAX, 1000),
    NUMBER(checkpoints_keep_seconds, 0, INT32_MAX, 0),
    NUMBER(checkpoints_keep_bytes, 0, INT64_MAX, 0),
};

static const char *const wake_words[] = {
    [CONFIG_WAKE_ACCESS] = "access",
    [CONFIG_WAKE_EXEC] = "exec",
};

static const char *const writes_words[] = {
    [CONFIG_WRITES_GATHERED] = "gathered",
    [CONFIG_WRITES_NEVER] = "never",
};

static int wrong(struct err *err, const char *name, const char *what)
{
    return err_set(err, EINVAL,
                   "Invalid session_sandbox config: '%s' must be %s", name,
                   what);
}

static void set_field(struct config *config, const struct field *field,
                      int64_t value)
{
    char *at = (char *)config + field->offset;

    if (field->is_bool) {
        *(bool *)(void *)at = value != 0;
    } else {
        *(int64_t *)(void *)at = value;
    }
}

static int64_t get_field(const struct config *config, const struct field *field)
{
    const char *at = (const char *)config + field->offset;

    return field->is_bool ? *(const bool *)(const void *)at
                          : *(const int64_t *)(const void *)at;
}

static void set_fallbacks(struct config *config)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        set_field(config, &fields[i], fields[i].fallback);
    }
}

int config_default(const char *provider, struct config *out, struct err *err)
{
    struct config config = {
        .provider = strdup(provider),
        .provider_config = strdup("{}"),
    };

    if (!config.provider || !config.provider_config) {
        config_done(&config);
        return err_no_memory(err);
    }
    set_fallbacks(&config);
    config.auto_start = false;
    *out = config;
    return 0;
}

static int read_field(const struct js *value, const struct field *field,
                      struct config *out, struct err *err)
{
    if (field->is_bool) {
        if (js_type(value) != JS_BOOL) {
            return wrong(err, field->name, "a boolean");
        }
        set_field(out, field, js_bool(value));
        return 0;
    }
    if (js_type(value) != JS_INT) {
        return wrong(err, field->name, "an integer");
    }
    if (js_int(value) < field->min || js_int(value) > field->max) {
        return err_set(err, EINVAL,
                       "Invalid session_sandbox config: '%s' must be from "
                       "%lld to %lld",
                       field->name,
                       (long long)(field->min == INT64_MIN ? 1 : field->min),
                       (long long)field->max);
    }
    set_field(out, field, js_int(value));
    return 0;
}

static int read_fields(const struct js *js, struct config *out, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(fields) && rc == 0; i++) {
        struct js *value = js_get(js, fields[i].name);

        if (value) {
            rc = read_field(value, &fields[i], out, err);
        }
        js_free(value);
    }
    return rc;
}

/* Reads a key that has one of two words; `place` keeps what it has without. */
static int read_word(const struct js *js, const char *name,
                     const char *const words[2], int *place, struct err *err)
{
    struct js *value = js_get(js, name);
    bool known = !value;
    const char *word = "";
    char choice[64];
    size_t size = 0;

    if (value && js_type(value) == JS_TEXT) {
        word = js_bytes(value, &size);
    }
    for (int i = 0; size && i < 2; i++) {
        if (size == strlen(words[i]) && memcmp(word, words[i], size) == 0) {
            *place = i;
            known = true;
        }
    }
    js_free(value);
    (void)snprintf(choice, sizeof(choice), "'%s' or '%s'", words[0], words[1]);
    return known ? 0 : wrong(err, name, choice);
}

static int read_words(const struct js *js, struct config *out, struct err *err)
{
    int wake = (int)out->wake;
    int writes = (int)out->checkpoint_writes;
    int rc = read_word(js, "wake", wake_words, &wake, err);

    if (rc == 0) {
        rc = read_word(js, "checkpoint_writes", writes_words, &writes, err);
    }
    out->wake = (enum config_wake)wake;
    out->checkpoint_writes = (enum config_writes)writes;
    return rc;
}

/* ---- init ---- */

static int add_command(void *arg, const char *key, const struct js *value,
                       struct err *err)
{
    struct config *config = arg;
    const char *text;
    size_t size;
    char *copy;

    (void)key;
    if (js_type(value) != JS_TEXT) {
        return wrong(err, "init.commands", "an array of strings");
    }
    text = js_bytes(value, &size);
    if (memchr(text, '\0', size)) {
        return wrong(err, "init.commands", "free of NUL bytes");
    }
    copy = strdup(text);
    if (!copy) {
        return err_no_memory(err);
    }
    config->init_commands[config->init_count++] = copy;
    return 0;
}

static int read_commands(const struct js *commands, struct config *out,
                         struct err *err)
{
    if (js_type(commands) != JS_ARRAY) {
        return wrong(err, "init.commands", "an array of strings");
    }
    out->init_commands = calloc(js_count(commands) + 1, sizeof(char *));
    if (!out->init_commands) {
        return err_no_memory(err);
    }
    return js_each(commands, add_command, out, err);
}

static int read_init(const struct js *js, struct config *out, struct err *err)
{
    struct js *init = js_get(js, "init");
    struct js *commands = NULL;
    int rc = 0;

    if (init && !js_is_object(init)) {
        rc = wrong(err, "init", "an object");
    } else if (init) {
        commands = js_get(init, "commands");
    }
    if (commands) {
        rc = read_commands(commands, out, err);
    }
    js_free(commands);
    js_free(init);
    return rc;
}

/* ---- The whole ---- */

/* The text of provider_config, `{}` where there is none. */
static int read_provider_config(const struct js *js, char **out,
                                struct err *err)
{
    struct js *inner = js_get(js, "provider_config");
    struct buf text = BUF_INIT(WRITTEN_MAX);
    int rc = 0;

    if (inner && js_type(inner) == JS_NULL) {
        rc = 0;
    } else if (inner && !js_is_object(inner)) {
        rc = wrong(err, "provider_config", "an object");
    } else if (inner && js_write(inner, &text) < 0) {
        rc = err_no_memory(err);
    }
    js_free(inner);
    if (rc == 0) {
        *out = strdup(text.size ? buf_str(&text) : "{}");
        rc = *out ? 0 : err_no_memory(err);
    }
    buf_done(&text);
    return rc;
}

static bool is_blank(char c)
{
    return c && strchr(" \t\r\n\v\f", c);
}

/* Takes the blanks at both ends away. */
static int read_provider(const struct js *js, struct config *out,
                         struct err *err)
{
    struct js *value = js_get(js, "provider");
    const char *text = "";
    size_t size = 0;
    int rc = 0;

    if (value && js_type(value) != JS_TEXT) {
        rc = wrong(err, "provider", "a string");
    } else if (value) {
        text = js_bytes(value, &size);
    }
    if (rc == 0 && memchr(text, '\0', size)) {
        rc = wrong(err, "provider", "free of NUL bytes");
    }
    while (size && is_blank(text[size - 1])) {
        size--;
    }
    while (size && is_blank(*text)) {
        text++;
        size--;
    }
    if (rc == 0) {
        out->provider = strndup(text, size);
        rc = out->provider ? 0 : err_no_memory(err);
    }
    js_free(value);
    return rc;
}

static int check_config(const struct config *config, struct err *err)
{
    if (config->provider[0] == '\0') {
        return err_set(err, EINVAL,
                       "session_sandbox config requires non-empty 'provider'");
    }
    if (config->idle_pause_after_seconds < 1) {
        return err_set(err, EINVAL,
                       "session_sandbox config requires "
                       "idle_pause_after_seconds >= 1");
    }
    return 0;
}

/* A field of a wrong type is told before one that is missing or too small. */
static int read_all(const struct js *js, struct config *out, struct err *err)
{
    int rc;

    if (!js_is_object(js)) {
        return err_set(err, EINVAL, "session_sandbox config must be an object");
    }
    set_fallbacks(out);
    rc = read_provider(js, out, err);
    if (rc == 0) {
        rc = read_fields(js, out, err);
    }
    if (rc == 0) {
        rc = read_words(js, out, err);
    }
    if (rc == 0) {
        rc = read_init(js, out, err);
    }
    if (rc == 0) {
        rc = read_provider_config(js, &out->provider_config, err);
    }
    return rc < 0 ? rc : check_config(out, err);
}

int config_read(const struct js *js, struct config *out, struct err *err)
{
    struct config config = {.provider = NULL};
    int rc = read_all(js, &config, err);

    if (rc < 0) {
        config_done(&config);
        return rc;
    }
    *out = config;
    return 0;
}

int config_json(const char *text, size_t size, struct js **out, struct err *err)
{
    int rc = size > CONFIG_TEXT_MAX
                 ? err_set(err, EFBIG, "it is over %d bytes", CONFIG_TEXT_MAX)
                 : js_parse(text, size, out, err);

    return rc < 0 ? err_wrap(err, rc, "Invalid session_sandbox config") : 0;
}

bool config_is_none(const struct js *js)
{
    return js_type(js) == JS_NULL || (js_is_object(js) && js_count(js) == 0);
}

int config_parse(const char *text, struct config *out, struct err *err)
{
    struct js *js = NULL;
    int rc = js_parse(text, strlen(text), &js, err);

    if (rc < 0) {
        return err_wrap(err, rc, "Invalid session_sandbox config");
    }
    rc = config_read(js, out, err);
    js_free(js);
    return rc;
}

int config_copy(const struct config *from, struct config *out, struct err *err)
{
    AUTO_FREE char *text = NULL;
    int rc = config_text(from, &text, err);

    return rc < 0 ? rc : config_parse(text, out, err);
}

static struct js *init_js(const struct config *config)
{
    struct js *init = js_object();
    struct js *commands = js_array();

    for (size_t i = 0; i < config->init_count; i++) {
        js_add_bytes(commands, config->init_commands[i],
                     strlen(config->init_commands[i]));
    }
    js_set(init, "commands", commands);
    return init;
}

int config_text(const struct config *config, char **out, struct err *err)
{
    struct js *js = js_object();
    struct buf text = BUF_INIT(WRITTEN_MAX);
    int rc;

    js_set_text(js, "provider", config->provider);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (fields[i].is_bool) {
            js_set_bool(js, fields[i].name, get_field(config, &fields[i]) != 0);
        } else {
            js_set_int(js, fields[i].name, get_field(config, &fields[i]));
        }
    }
    js_set_text(js, "wake", wake_words[config->wake]);
    js_set_text(js, "checkpoint_writes",
                writes_words[config->checkpoint_writes]);
    js_set_raw(js, "provider_config", config->provider_config);
    js_set(js, "init", init_js(config));
    rc = js_write_lines(js, &text);
    if (rc == 0) {
        rc = buf_add(&text, "\n", 1);
    }
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
    for (size_t i = 0; i < config->init_count; i++) {
        free(config->init_commands[i]);
    }
    free((void *)config->init_commands);
    free(config->provider);
    free(config->provider_config);
    *config = (struct config){.provider = NULL};
}
