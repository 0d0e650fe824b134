/* See run_request.h. */
#include "fs/run_request.h"

#include "core/base64.h"
#include "core/exec_request.h"
#include "core/json.h"
#include "core/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum {
    /* As base64 it fills a request. */
    INPUT_MAX = EXEC_REQUEST_MAX / 4 * 3,
    CHUNK = 64 * 1024,
};

static int check_text(const char *text, struct err *err)
{
    struct utf8 utf8 = {0, 0, 0};
    bool good = true;

    for (const char *at = text; *at && good; at++) {
        good = utf8_step(&utf8, (unsigned char)*at);
    }
    return good && utf8.left == 0
               ? 0
               : err_set(err, EILSEQ,
                         "an argument is not UTF-8, which JSON must be");
}

static int set_text(struct js *js, const char *key, const char *text,
                    struct err *err)
{
    int rc = check_text(text, err);

    if (rc == 0) {
        js_set_bytes(js, key, text, strlen(text));
    }
    return rc;
}

static int set_words(struct js *js, char **argv, struct err *err)
{
    struct js *words = js_array();
    int rc = 0;

    for (size_t i = 0; argv[i] && rc == 0; i++) {
        rc = check_text(argv[i], err);
        if (rc == 0) {
            js_add_bytes(words, argv[i], strlen(argv[i]));
        }
    }
    js_set(js, "argv", words);
    return rc;
}

static int set_env(struct js *js, const char *const *env, struct err *err)
{
    struct js *object = js_object();
    int rc = 0;

    for (size_t i = 0; env[i] && rc == 0; i++) {
        size_t len = strcspn(env[i], "=");
        struct buf name = BUF_INIT(len);

        rc = buf_add(&name, env[i], len);
        rc = rc < 0 ? err_set(err, -rc, "out of memory")
                    : check_text(env[i], err);
        if (rc == 0) {
            js_set_bytes(object, name.data, env[i] + len + 1,
                         strlen(env[i] + len + 1));
        }
        buf_done(&name);
    }
    js_set(js, "env", object);
    return rc;
}

/* ---- The input ---- */

static bool has_input(void)
{
    return fcntl(STDIN_FILENO, F_GETFD) >= 0 && !isatty(STDIN_FILENO);
}

static int read_input(struct buf *out, struct err *err)
{
    static char chunk[CHUNK];
    ssize_t n;

    do {
        n = read(STDIN_FILENO, chunk, sizeof(chunk));
        if (n < 0) {
            return err_errno(err, "standard input");
        }
        if (buf_add(out, chunk, (size_t)n) < 0) {
            return err_set(err, EFBIG,
                           "standard input is over %d bytes; put it into a "
                           "file in workspace/, and let the command read that",
                           INPUT_MAX);
        }
    } while (n > 0);
    return 0;
}

/* None where it is empty: not every provider gives a command one. */
static int set_input(struct js *js, struct err *err)
{
    struct buf input = BUF_INIT(INPUT_MAX);
    struct buf text = BUF_INIT(EXEC_REQUEST_MAX);
    int rc = has_input() ? read_input(&input, err) : 0;

    if (rc == 0 && input.size) {
        rc = base64_encode(input.data, input.size, &text);
        rc = rc < 0 ? err_set(err, -rc, "cannot pass standard input on") : 0;
    }
    if (rc == 0 && input.size) {
        js_set_bytes(js, "stdin_base64", text.data, text.size);
    }
    buf_done(&input);
    buf_done(&text);
    return rc;
}

static int set_all(struct js *js, const struct run_args *args, struct err *err)
{
    int rc = args->script ? set_text(js, "command", args->script, err)
                          : set_words(js, args->argv, err);

    if (rc == 0 && args->cwd) {
        rc = set_text(js, "cwd", args->cwd, err);
    }
    if (rc == 0 && args->env[0]) {
        rc = set_env(js, args->env, err);
    }
    if (rc == 0 && args->timeout_ms) {
        js_set_int(js, "timeout_ms", args->timeout_ms);
    }
    return rc < 0 ? rc : set_input(js, err);
}

int run_request_make(const struct run_args *args, struct buf *out,
                     struct err *err)
{
    struct js *js = js_object();
    int rc = set_all(js, args, err);

    if (rc == 0) {
        rc = js_write(js, out);
        if (rc == -EFBIG) {
            (void)err_set(err, EFBIG,
                          "the arguments and standard input make a request of "
                          "over %d bytes",
                          EXEC_REQUEST_MAX);
        } else if (rc < 0) {
            (void)err_set(err, -rc, "out of memory");
        }
    }
    js_free(js);
    return rc;
}
