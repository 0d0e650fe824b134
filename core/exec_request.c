/* See exec_request.h. */
#include "core/exec_request.h"

#include "core/base64.h"
#include "core/cleanup.h"
#include "core/exec.h"
#include "core/json.h"
#include "core/json_bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Of a request whose texts are bytes, each of them an escape. */
    PROPER_MAX = 12 * EXEC_REQUEST_MAX
};

/* What adding to the text of the command failed with. */
static int not_added(int rc, const char *what, struct err *err)
{
    return rc == -EFBIG ? err_set(err, EFBIG, "%s is over 1 MiB long", what)
                        : err_no_memory(err);
}

/* Takes a text, whatever bytes it is made of, as a string. */
static int take_string(const char *what, const struct js *value, char **out,
                       struct err *err)
{
    struct buf bytes = BUF_INIT(EXEC_REQUEST_MAX);
    const char *text;
    size_t size;

    if (js_type(value) != JS_TEXT) {
        return err_set(err, EINVAL, "%s must be a string", what);
    }
    text = js_bytes(value, &size);
    if (js_bytes_take(text, size, &bytes) < 0 || buf_add(&bytes, "", 0) < 0) {
        buf_done(&bytes);
        return err_no_memory(err);
    }
    if (strlen(bytes.data) != bytes.size) {
        buf_done(&bytes);
        return err_set(err, EINVAL, "%s holds a NUL byte", what);
    }
    *out = bytes.data;
    return 0;
}

static int read_command(struct exec_request *request, const struct js *value,
                        struct err *err)
{
    AUTO_FREE char *text = NULL;
    int rc = take_string("'command'", value, &text, err);

    if (rc < 0) {
        return rc;
    }
    rc = buf_add(&request->text, text, strlen(text));
    return rc < 0 ? not_added(rc, "the command", err) : 0;
}

/* ---- argv ---- */

static bool needs_quotes(const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyz"
                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

    return word[0] == '\0' || word[strspn(word, safe)] != '\0';
}

static int add_quoted(struct buf *out, const char *word)
{
    int rc = buf_add(out, "'", 1);

    while (*word && rc == 0) {
        size_t len = strcspn(word, "'");

        rc = buf_add(out, word, len);
        word += len;
        if (*word && rc == 0) {
            rc = buf_add(out, "'\\''", 4);
            word++;
        }
    }
    return rc < 0 ? rc : buf_add(out, "'", 1);
}

/* Where a list of strings grows. */
struct strings {
    struct exec_request *request;
    const char **list;
    size_t count;
};

static int add_word(void *arg, const char *key, const struct js *value,
                    struct err *err)
{
    struct strings *strings = arg;
    struct buf *text = &strings->request->text;
    char *word = NULL;
    int rc = take_string("each of 'argv'", value, &word, err);

    (void)key;
    if (rc < 0) {
        return rc;
    }
    strings->list[strings->count] = word;
    if (strings->count++) {
        rc = buf_add(text, " ", 1);
    }
    if (rc == 0) {
        rc = needs_quotes(word) ? add_quoted(text, word)
                                : buf_add(text, word, strlen(word));
    }
    return rc < 0 ? not_added(rc, "'argv'", err) : 0;
}

static int read_argv(struct exec_request *request, const struct js *value,
                     struct err *err)
{
    struct strings strings = {.request = request};
    int rc;

    if (js_type(value) != JS_ARRAY || js_count(value) == 0) {
        return err_set(err, EINVAL,
                       "'argv' must be an array of strings, not empty");
    }
    request->argv = calloc(js_count(value) + 1, sizeof(*request->argv));
    if (!request->argv) {
        return err_no_memory(err);
    }
    strings.list = request->argv;
    rc = js_each(value, add_word, &strings, err);
    if (rc == 0 && request->argv[0][0] == '\0') {
        return err_set(err, EINVAL, "the program in 'argv' is empty");
    }
    if (rc < 0) {
        return rc;
    }
    rc = buf_add(&request->text, "\n", 1);
    return rc < 0 ? not_added(rc, "'argv'", err) : 0;
}

/* ---- The others ---- */

static int read_cwd(struct exec_request *request, const struct js *value,
                    struct err *err)
{
    int rc = take_string("'cwd'", value, &request->cwd, err);

    if (rc < 0) {
        return rc;
    }
    if (request->cwd[0] == '\0' || strlen(request->cwd) >= PATH_MAX) {
        return err_set(err, EINVAL, "'cwd' is empty or too long");
    }
    return 0;
}

static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    return text[0] && !(text[0] >= '0' && text[0] <= '9') &&
           text[strspn(text, letters)] == '\0';
}

static int add_assignment(void *arg, const char *key, const struct js *value,
                          struct err *err)
{
    struct strings *strings = arg;
    struct buf text = BUF_INIT(EXEC_REQUEST_MAX);
    AUTO_FREE char *word = NULL;
    int rc;

    if (!is_name(key)) {
        return err_set(err, EINVAL, "'%.*s' in 'env' is no variable's name",
                       (int)strcspn(key, "="), key);
    }
    rc = take_string("each value in 'env'", value, &word, err);
    if (rc < 0) {
        return rc;
    }
    if (buf_printf(&text, "%s=%s", key, word) < 0) {
        return err_no_memory(err);
    }
    strings->list[strings->count++] = text.data;
    return 0;
}

static int read_env(struct exec_request *request, const struct js *value,
                    struct err *err)
{
    struct strings strings = {.request = request};

    if (js_type(value) != JS_OBJECT) {
        return err_set(err, EINVAL, "'env' must be an object of strings");
    }
    request->env = calloc(js_count(value) + 1, sizeof(*request->env));
    if (!request->env) {
        return err_no_memory(err);
    }
    strings.list = request->env;
    return js_each(value, add_assignment, &strings, err);
}

static int begin_input(struct exec_request *request, const struct js *value,
                       struct err *err)
{
    if (request->has_input) {
        return err_set(err, EINVAL,
                       "'stdin' and 'stdin_base64' exclude each other");
    }
    request->has_input = true;
    return js_type(value) == JS_TEXT
               ? 0
               : err_set(err, EINVAL, "the command's stdin must be a string");
}

static int read_stdin(struct exec_request *request, const struct js *value,
                      struct err *err)
{
    int rc = begin_input(request, value, err);
    const char *data;
    size_t size;

    if (rc < 0) {
        return rc;
    }
    data = js_bytes(value, &size);
    return js_bytes_take(data, size, &request->input) < 0 ? err_no_memory(err)
                                                          : 0;
}

static int read_stdin_base64(struct exec_request *request,
                             const struct js *value, struct err *err)
{
    int rc = begin_input(request, value, err);
    const char *data;
    size_t size;

    if (rc < 0) {
        return rc;
    }
    data = js_bytes(value, &size);
    rc = base64_decode(data, size, &request->input);
    return rc == -EINVAL ? err_set(err, EINVAL, "'stdin_base64' is no base64")
           : rc < 0      ? err_no_memory(err)
                         : 0;
}

static int read_timeout(struct exec_request *request, const struct js *value,
                        struct err *err)
{
    if (js_type(value) != JS_INT || js_int(value) < 1 ||
        js_int(value) > EXEC_TIMEOUT_MAX) {
        return err_set(
            err, EINVAL,
            "timeout_ms must be a positive integer, at most %" PRId64,
            EXEC_TIMEOUT_MAX);
    }
    request->timeout_ms = js_int(value);
    return 0;
}

static int read_mode(struct exec_request *request, const struct js *value,
                     struct err *err)
{
    AUTO_FREE char *name = NULL;
    int rc = take_string("'output_mode'", value, &name, err);

    if (rc < 0) {
        return rc;
    }
    return shape_mode_find(name, &request->mode)
               ? 0
               : err_set(err, EINVAL,
                         "'output_mode' must be one of auto, silent, concise, "
                         "normal, verbose and full");
}

static int take_bool(const char *what, const struct js *value, bool *out,
                     struct err *err)
{
    if (js_type(value) != JS_BOOL) {
        return err_set(err, EINVAL, "%s must be true or false", what);
    }
    *out = js_bool(value);
    return 0;
}

static int read_background(struct exec_request *request, const struct js *value,
                           struct err *err)
{
    return take_bool("'background'", value, &request->background, err);
}

static int read_discard(struct exec_request *request, const struct js *value,
                        struct err *err)
{
    return take_bool("'discard_output'", value, &request->discard, err);
}

static const struct {
    const char *key;
    int (*read)(struct exec_request *request, const struct js *value,
                struct err *err);
} members[] = {
    {"command", read_command},
    {"argv", read_argv},
    {"cwd", read_cwd},
    {"env", read_env},
    {"stdin", read_stdin},
    {"stdin_base64", read_stdin_base64},
    {"timeout_ms", read_timeout},
    {"output_mode", read_mode},
    {"background", read_background},
    {"discard_output", read_discard},
};

static int read_member(void *arg, const char *key, const struct js *value,
                       struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (strcmp(members[i].key, key) == 0) {
            return members[i].read(arg, value, err);
        }
    }
    return err_set(err, EINVAL, "unknown member '%.64s'", key);
}

static bool has(const struct js *js, const char *key)
{
    struct js *value = js_get(js, key);

    js_free(value);
    return value != NULL;
}

static int read_all(struct exec_request *request, const struct js *js,
                    struct err *err)
{
    if (!js_is_object(js)) {
        return err_set(err, EINVAL, "the request must be a JSON object");
    }
    if (has(js, "command") == has(js, "argv")) {
        return err_set(err, EINVAL,
                       "the request needs one of 'command' and 'argv'");
    }
    return js_each(js, read_member, request, err);
}

static int parse(const char *json, size_t size, struct js **out,
                 struct err *err)
{
    struct buf proper = BUF_INIT(PROPER_MAX);
    int rc = js_bytes_read(json, size, &proper);

    rc = rc < 0 ? err_no_memory(err)
                : js_parse(buf_str(&proper), proper.size, out, err);
    buf_done(&proper);
    return rc;
}

int exec_request_parse(const char *json, size_t size, struct exec_request *out,
                       struct err *err)
{
    struct exec_request request = {.mode = SHAPE_AUTO};
    struct js *js = NULL;
    int rc = parse(json, size, &js, err);

    if (rc < 0) {
        return rc;
    }
    buf_init(&request.text, EXEC_SCRIPT_MAX);
    buf_init(&request.input, EXEC_REQUEST_MAX);
    rc = read_all(&request, js, err);
    js_free(js);
    if (rc < 0) {
        exec_request_done(&request);
        return rc;
    }
    *out = request;
    return 0;
}

static void free_strings(const char **list)
{
    for (size_t i = 0; list && list[i]; i++) {
        free((void *)(uintptr_t)list[i]);
    }
    free(list);
}

void exec_request_done(struct exec_request *request)
{
    buf_done(&request->text);
    buf_done(&request->input);
    free_strings(request->argv);
    free_strings(request->env);
    free(request->cwd);
}
