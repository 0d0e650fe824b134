/* See exec_shape.h. */
#include "core/exec_shape.h"

#include "core/base64.h"
#include "core/cleanup.h"
#include "core/exec_clean.h"
#include "core/exec_cut.h"

#include <string.h>

enum {
    READ_SIZE = 256 * 1024,
    FULL_BYTES = 64 * 1024,
    STDERR_BYTES = 4096,
    AUTO_BYTES = 384, /* Of a success. */
};

static const struct {
    const char *name;
    uint64_t bytes;
} modes[] = {
    [SHAPE_AUTO] = {"auto", 8192},        [SHAPE_SILENT] = {"silent", 200},
    [SHAPE_CONCISE] = {"concise", 2048},  [SHAPE_NORMAL] = {"normal", 8192},
    [SHAPE_VERBOSE] = {"verbose", 16384}, [SHAPE_FULL] = {"full", FULL_BYTES},
};

const char *shape_mode_name(enum shape_mode mode)
{
    return modes[mode].name;
}

bool shape_mode_find(const char *name, enum shape_mode *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
        if (strcmp(name, modes[i].name) == 0) {
            *out = (enum shape_mode)i;
            return true;
        }
    }
    return false;
}

static uint64_t budget_of(enum shape_mode mode, bool failed, bool is_stderr)
{
    uint64_t bytes =
        mode == SHAPE_AUTO && !failed ? AUTO_BYTES : modes[mode].bytes;

    return is_stderr && mode != SHAPE_FULL && bytes > STDERR_BYTES
               ? STDERR_BYTES
               : bytes;
}

/* One stream on its way. */
struct stream {
    const struct shape_source *source;
    uint64_t budget;
    bool find; /* Errors. */
    struct cut_finder finder;
    struct clean clean;
    uint64_t size; /* As it came. */
    struct cut cut;
    int rc; /* Of filling it. */
};

/* Reads the whole stream through its cleaner. */
static int pass(struct stream *stream, struct err *err)
{
    AUTO_FREE char *data = malloc(READ_SIZE);
    ssize_t n = 1;

    if (!data) {
        return err_no_memory(err);
    }
    stream->size = 0;
    while (n > 0) {
        n = stream->source->read(stream->source->arg, stream->size, data,
                                 READ_SIZE, err);
        if (n < 0) {
            return (int)n;
        }
        clean_feed(&stream->clean, data, (size_t)n);
        stream->size += (size_t)n;
    }
    clean_end(&stream->clean);
    return 0;
}

static void find_text(void *arg, uint64_t pos, const char *data, size_t size)
{
    struct stream *stream = arg;

    (void)pos;
    cut_text(&stream->finder, data, size);
}

static void find_back(void *arg, uint64_t pos)
{
    struct stream *stream = arg;

    (void)pos;
    cut_back(&stream->finder);
}

static void find_line(void *arg, uint64_t pos)
{
    struct stream *stream = arg;

    cut_line(&stream->finder, pos);
}

/* Finds out how much text there is, and where its errors are. */
static int measure(struct stream *stream, struct err *err)
{
    int rc;

    stream->clean = (struct clean){.arg = stream};
    if (stream->find) {
        stream->clean.text = find_text;
        stream->clean.back = find_back;
        stream->clean.line = find_line;
    }
    rc = pass(stream, err);
    if (rc == 0 && stream->find && stream->finder.size) {
        cut_line(&stream->finder, stream->clean.pos);
    }
    return rc;
}

static void fill_text(void *arg, uint64_t pos, const char *data, size_t size)
{
    struct stream *stream = arg;

    if (stream->rc == 0) {
        stream->rc = cut_add(&stream->cut, pos, data, size);
    }
}

static void fill_back(void *arg, uint64_t pos)
{
    struct stream *stream = arg;

    cut_drop(&stream->cut, pos);
}

/* Reads it again for the text that is shown. */
static int fill(struct stream *stream, struct buf *out, struct err *err)
{
    uint64_t size = stream->clean.pos;
    int rc;

    if (size > stream->budget) {
        cut_choose(stream->find ? &stream->finder : NULL, size, stream->budget,
                   &stream->cut);
    } else {
        cut_nothing(size, &stream->cut);
    }
    stream->clean =
        (struct clean){.text = fill_text, .back = fill_back, .arg = stream};
    rc = pass(stream, err);
    if (rc == 0) {
        rc = stream->rc < 0 ? stream->rc : cut_join(&stream->cut, out);
        rc = rc < 0 ? err_set(err, -rc, "out of memory") : 0;
    }
    cut_done(&stream->cut);
    return rc;
}

/* The first bytes, as they are. */
static int fill_bytes(const struct stream *stream, struct buf *out,
                      struct err *err)
{
    size_t size = stream->size < stream->budget ? (size_t)stream->size
                                                : (size_t)stream->budget;
    AUTO_FREE char *data = malloc(size + 1);
    size_t done = 0;
    ssize_t n = 1;
    int rc;

    if (!data) {
        return err_no_memory(err);
    }
    while (n > 0 && done < size) {
        n = stream->source->read(stream->source->arg, done, data + done,
                                 size - done, err);
        if (n < 0) {
            return (int)n;
        }
        done += (size_t)n;
    }
    rc = base64_encode(data, done, out);
    return rc < 0 ? err_set(err, -rc, "out of memory") : 0;
}

static bool is_cut(const struct stream *stream, bool base64)
{
    uint64_t size = base64 ? stream->size : stream->clean.pos;

    return size > stream->budget;
}

static int fill_both(struct stream *out, struct stream *errs,
                     struct shape *shape, struct err *err)
{
    int rc;

    shape->base64 = out->clean.bad || errs->clean.bad;
    shape->truncated =
        is_cut(out, shape->base64) || is_cut(errs, shape->base64);
    shape->total_lines = out->clean.lines;
    if (shape->base64) {
        rc = fill_bytes(out, &shape->out, err);
        return rc < 0 ? rc : fill_bytes(errs, &shape->err, err);
    }
    rc = fill(out, &shape->out, err);
    return rc < 0 ? rc : fill(errs, &shape->err, err);
}

static struct stream *new_stream(const struct shape_source *source,
                                 uint64_t budget, bool find)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (stream) {
        stream->source = source;
        stream->budget = budget;
        stream->find = find;
    }
    return stream;
}

int shape_make(const struct shape_source *out, const struct shape_source *errs,
               enum shape_mode mode, bool failed, struct shape *shape,
               struct err *err)
{
    AUTO_FREE struct stream *first =
        new_stream(out, budget_of(mode, failed, false), failed);
    AUTO_FREE struct stream *second =
        new_stream(errs, budget_of(mode, failed, true), true);
    struct shape made = {.base64 = false};
    int rc;

    if (!first || !second) {
        return err_no_memory(err);
    }
    buf_init(&made.out, SIZE_MAX);
    buf_init(&made.err, SIZE_MAX);
    rc = measure(first, err);
    if (rc == 0) {
        rc = measure(second, err);
    }
    if (rc == 0) {
        rc = fill_both(first, second, &made, err);
    }
    if (rc < 0) {
        shape_done(&made);
        return rc;
    }
    *shape = made;
    return 0;
}

void shape_done(struct shape *shape)
{
    buf_done(&shape->out);
    buf_done(&shape->err);
}

const char *shape_hint(int exit_code)
{
    static const struct {
        int code;
        const char *words;
    } hints[] = {
        {124, "Command timed out."},
        {126, "The command was found but could not be executed; check its "
              "permissions and its interpreter."},
        {127, "Command not found; check its name, PATH, and that it is "
              "installed."},
        {137, "Killed (SIGKILL); perhaps it ran out of memory."},
        {139, "Segmentation fault (SIGSEGV)."},
        {141, "Broken pipe (SIGPIPE): its reader ended first."},
        {143, "Terminated (SIGTERM)."},
    };

    for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
        if (hints[i].code == exit_code) {
            return hints[i].words;
        }
    }
    return exit_code >= 129 && exit_code <= 192 ? "Killed by a signal." : NULL;
}
