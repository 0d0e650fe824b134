/* What is in messages. See jsonl.h. */
#include "core/base64.h"
#include "core/json_bytes.h"
#include "core/quote.h"
#include "core/utf8.h"
#include "providers/jsonl/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void answer_init(struct answer *out, size_t most)
{
    *out = (struct answer){.result = NULL};
    buf_init(&out->streams[0], most);
    buf_init(&out->streams[1], most);
}

void answer_done(struct answer *answer)
{
    js_free(answer->result);
    answer->result = NULL;
    buf_done(&answer->streams[0]);
    buf_done(&answer->streams[1]);
}

/* ---- Failures ---- */

/* What a text says to people; what is no UTF-8 in it comes out as `?`. */
static void show(const struct js *text, char *out, size_t size)
{
    struct buf bytes = BUF_INIT(PEER_LINE_MAX);
    struct buf shown = BUF_INIT(PEER_LINE_MAX);
    size_t n = 0;
    const char *data =
        text && js_type(text) == JS_TEXT ? js_bytes(text, &n) : "";

    if (js_bytes_take(data, n, &bytes) == 0 &&
        quote_words(&shown, buf_str(&bytes)) == 0) {
        (void)snprintf(out, size, "%.*s", (int)size - 1, buf_str(&shown));
    }
    buf_done(&bytes);
    buf_done(&shown);
}

void wire_failure(const struct js *error, struct answer *out)
{
    bool whole = js_is_object(error);
    struct js *code = whole ? js_get(error, "code") : NULL;
    struct js *message = whole ? js_get(error, "message") : NULL;
    char words[320] = "";

    show(code, out->code, sizeof(out->code));
    show(whole ? message : error, words, sizeof(words));
    out->retryable = wire_true(error, "retryable");
    (void)snprintf(out->words, sizeof(out->words), "%s%s%s", out->code,
                   out->code[0] ? ": " : "",
                   words[0] ? words : "no reason was given");
    js_free(code);
    js_free(message);
}

/* Whether words say that something is not there: a hint, not more. */
static bool tells_absence(const char *words)
{
    static const char *const signs[] = {"not found", "no such", "unknown",
                                        "does not exist", "404"};

    for (size_t i = 0; i < ARRAY_SIZE(signs); i++) {
        if (strcasestr(words, signs[i])) {
            return true;
        }
    }
    return false;
}

int wire_fail(const struct answer *answer, struct err *err)
{
    static const struct {
        const char *code;
        int errnum;
    } codes[] = {
        {"bad_profile", EINVAL},
        {"unknown_method", EOPNOTSUPP},
        {"unsupported_method", EOPNOTSUPP},
        {"unknown_session", ESTALE},
        {"session_not_found", ESTALE},
        {"sandbox_not_found", ESTALE},
    };
    int errnum = answer->retryable              ? EAGAIN
                 : tells_absence(answer->words) ? ENOENT
                                                : EIO;

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (strcmp(answer->code, codes[i].code) == 0) {
            errnum = codes[i].errnum;
        }
    }
    return err_set(err, errnum, "%s", answer->words);
}

/* ---- Values ---- */

int wire_bytes(const struct js *js, const char *key, struct buf *out,
               struct err *err)
{
    struct js *value = js_get(js, key);
    size_t size = 0;
    int rc = 0;

    if (value && js_type(value) == JS_TEXT) {
        const char *text = js_bytes(value, &size);

        rc = base64_decode(text, size, out);
    } else if (value && js_type(value) != JS_NULL) {
        rc = -EINVAL;
    }
    js_free(value);
    if (rc == -EINVAL) {
        return err_set(err, EPROTO, "'%s' holds no base64", key);
    }
    return rc < 0 ? err_set(err, -rc, "'%s' is too long", key) : 0;
}

const char *wire_text(const struct js *js, const char *key)
{
    struct js *value = js_get(js, key);
    const char *text = js_text(js, key);
    size_t size = 0;

    /* js_bytes_read() has put a NUL before each such byte. */
    if (text && (!js_bytes(value, &size) || strlen(text) != size)) {
        text = NULL;
    }
    js_free(value);
    return text;
}

bool wire_int(const struct js *js, const char *key, int64_t *out)
{
    struct js *value = js_get(js, key);
    bool is_int = value && js_type(value) == JS_INT;

    if (is_int) {
        *out = js_int(value);
    }
    js_free(value);
    return is_int;
}

bool wire_true(const struct js *js, const char *key)
{
    struct js *value = js_is_object(js) ? js_get(js, key) : NULL;
    bool is_true = value && js_type(value) == JS_BOOL && js_bool(value);

    js_free(value);
    return is_true;
}

int wire_set_bytes(struct js *js, const char *key, const void *data,
                   size_t size)
{
    struct buf text = BUF_INIT(PEER_LINE_MAX);
    int rc = base64_encode(data, size, &text);

    if (rc == 0) {
        js_set_bytes(js, key, buf_str(&text), text.size);
    }
    buf_done(&text);
    return rc;
}

bool wire_is_text(const char *text)
{
    struct utf8 utf8 = {0};

    while (*text && utf8_step(&utf8, (unsigned char)*text)) {
        text++;
    }
    return !*text && !utf8.left;
}

/* ---- Arguments ---- */

static bool all_text(const char *const *args)
{
    while (*args && wire_is_text(*args)) {
        args++;
    }
    return !*args;
}

static void add_arg(struct js *argv, const char *arg)
{
    js_add_bytes(argv, arg, strlen(arg));
}

/* As printf's %b takes it, in ASCII alone. */
static int add_escaped(struct js *argv, const char *arg)
{
    struct buf text = BUF_INIT(PEER_LINE_MAX);
    int rc = 0;

    for (; *arg && rc == 0; arg++) {
        unsigned char c = (unsigned char)*arg;

        rc = c < 0x80 && c != '\\' ? buf_add(&text, arg, 1)
                                   : buf_printf(&text, "\\0%03o", c);
    }
    if (rc == 0) {
        add_arg(argv, buf_str(&text));
    }
    buf_done(&text);
    return rc;
}

static struct js *with_argv(struct js *argv)
{
    struct js *params = js_object();

    if (!argv || !params) {
        js_free(argv);
        js_free(params);
        return NULL;
    }
    js_set(params, "argv", argv);
    return params;
}

/* No JSON text can hold such arguments, and what stands for them in some
 * programs' JSON is an error in others': so a shell makes them. */
static const char decode[] = "for a do a=$(printf '%bx' \"$a\"); "
                             "set -- \"$@\" \"${a%x}\"; shift; done\n";

static struct js *decoded(const char *text, const char *const *args)
{
    struct js *argv = js_array();
    struct buf script = BUF_INIT(PEER_LINE_MAX);
    int rc = buf_add(&script, decode, strlen(decode));

    rc = rc < 0 ? rc : buf_add(&script, text, strlen(text));
    add_arg(argv, "/bin/sh");
    add_arg(argv, "-c");
    add_arg(argv, buf_str(&script));
    add_arg(argv, "sh");
    for (; *args && rc == 0; args++) {
        rc = add_escaped(argv, *args);
    }
    buf_done(&script);
    if (rc < 0) {
        js_free(argv);
        return NULL;
    }
    return with_argv(argv);
}

struct js *wire_script(const char *text, const char *const *args)
{
    struct js *argv;

    if (!all_text(args)) {
        return decoded(text, args);
    }
    argv = js_array();
    add_arg(argv, "/bin/sh");
    add_arg(argv, "-c");
    add_arg(argv, text);
    add_arg(argv, "sh");
    for (; *args; args++) {
        add_arg(argv, *args);
    }
    return with_argv(argv);
}

struct js *wire_argv(const char *const *argv)
{
    struct js *list;

    if (!all_text(argv)) {
        return decoded("exec \"$@\"", argv);
    }
    list = js_array();
    for (; *argv; argv++) {
        add_arg(list, *argv);
    }
    return with_argv(list);
}
