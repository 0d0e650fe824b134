/* What `exec.json` answers. See exec.h. */
#include "core/cleanup.h"
#include "core/exec_priv.h"
#include "core/json.h"

#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MAX = 2 * 1024 * 1024,
    /* Output over this is not read through again and again. */
    CACHED = 1024 * 1024,
};

struct view {
    struct exec *exec;
    enum exec_view view;
};

static ssize_t read_view(void *arg, uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    const struct view *view = arg;

    return exec_read(view->exec, view->view, offset, out, size, err);
}

static void set_output(struct js *js, const struct shape *shape)
{
    js_set_bytes(js, "stdout", buf_str(&shape->out), shape->out.size);
    js_set_bytes(js, "stderr", buf_str(&shape->err), shape->err.size);
    js_set_text(js, "encoding", shape->base64 ? "base64" : "text");
}

static int add_raw(const struct shape *shape, struct buf *raw)
{
    int rc = buf_add(raw, buf_str(&shape->out), shape->out.size);

    if (rc == 0 && shape->err.size) {
        rc = buf_printf(raw, "\n--- stderr ---\n");
    }
    return rc < 0 || !shape->err.size
               ? rc
               : buf_add(raw, buf_str(&shape->err), shape->err.size);
}

/* Both streams in one text; there is none of base64. */
static int set_raw(struct js *js, const struct shape *shape, struct err *err)
{
    struct buf raw = BUF_INIT(ANSWER_MAX);
    int rc = 0;

    if (!shape->base64) {
        rc = add_raw(shape, &raw);
        if (rc == 0) {
            js_set_bytes(js, "raw_output", buf_str(&raw), raw.size);
        }
    }
    buf_done(&raw);
    return rc < 0 ? err_set(err, -rc, "cannot write the answer") : 0;
}

static void set_exit(struct js *js, const struct exec_info *info)
{
    js_set_text(js, "status", exec_status_name(info->status));
    if (info->has_exit_code) {
        js_set_int(js, "exit_code", info->exit_code);
    } else {
        js_set_null(js, "exit_code");
    }
}

static void set_signal(struct js *js, int signal)
{
    const char *name = sigabbrev_np(signal);
    char number[16];

    (void)snprintf(number, sizeof(number), "%d", signal);
    js_set_text(js, "signal", name ? name : number);
}

/* What follows the output. */
static void set_rest(struct js *js, const struct exec_info *info)
{
    bool killed = info->status == EXEC_KILLED && info->exit_code > 128;
    int64_t us = info->started_us ? info->ended_us - info->started_us : 0;
    const char *hint = info->has_exit_code ? shape_hint(info->exit_code) : NULL;

    if (hint) {
        js_set_text(js, "hint", hint);
    }
    js_set_bool(js, "timed_out", info->status == EXEC_TIMEOUT);
    if (killed) {
        set_signal(js, info->exit_code - 128);
    }
    js_set_time(js, "started_at", info->started_us);
    js_set_int(js, "duration_ms", us > 0 ? us / 1000 : 0);
    if (info->checkpoint) {
        js_set_int(js, "checkpoint", (int64_t)info->checkpoint);
        js_set_int(js, "changes", (int64_t)info->changed);
    }
    if (info->err.code) {
        js_set_text(js, "error", info->err.msg);
    }
}

static int set_all(struct js *js, const struct exec_info *info,
                   const struct shape *shape, enum shape_mode mode,
                   struct err *err)
{
    bool success = info->status == EXEC_EXITED && info->exit_code == 0;
    int rc = 0;

    set_exit(js, info);
    set_output(js, shape);
    js_set_bool(js, "success", success);
    js_set_bool(js, "truncated", shape->truncated);
    js_set_int(js, "total_lines", (int64_t)shape->total_lines);
    if (mode == SHAPE_FULL) {
        rc = set_raw(js, shape, err);
    }
    set_rest(js, info);
    return rc;
}

static int set_end(struct exec *exec, const struct exec_info *info,
                   enum shape_mode mode, struct js *js, struct err *err)
{
    struct view out = {exec, EXEC_STDOUT};
    struct view errs = {exec, EXEC_STDERR};
    const struct shape_source sources[] = {{read_view, &out},
                                           {read_view, &errs}};
    bool failed = info->status != EXEC_EXITED || info->exit_code != 0;
    struct shape shape;
    int rc = shape_make(&sources[0], &sources[1], mode, failed, &shape, err);

    if (rc == 0) {
        rc = set_all(js, info, &shape, mode, err);
        shape_done(&shape);
    }
    return rc;
}

/* Told of its start, it runs, whatever came of it since. */
static void set_begin(const struct exec_info *info, bool begun, struct js *js)
{
    js_set_text(js, "status",
                begun ? "running" : exec_status_name(info->status));
    if (info->process_id) {
        js_set_int(js, "process_id", info->process_id);
    }
}

static int write_line(const struct js *js, struct buf *out, struct err *err)
{
    int rc = js_write(js, out);

    if (rc == 0) {
        rc = buf_add(out, "\n", 1);
    }
    return rc < 0 ? err_set(err, -rc, "cannot write the answer") : 0;
}

static int make_begin(const struct exec_info *info, bool begun, struct buf *out,
                      struct err *err)
{
    struct js *js = js_object();
    int rc;

    js_set_int(js, "id", (int64_t)info->n);
    set_begin(info, begun, js);
    rc = write_line(js, out, err);
    js_free(js);
    return rc;
}

static int make_end(struct exec *exec, const struct exec_info *info,
                    enum shape_mode mode, struct buf *out, struct err *err)
{
    struct js *js = js_object();
    int rc;

    js_set_int(js, "id", (int64_t)info->n);
    rc = set_end(exec, info, mode, js, err);
    if (rc == 0) {
        rc = write_line(js, out, err);
    }
    js_free(js);
    return rc;
}

/* ---- The last long answer of a session ---- */

static bool find_kept(struct exec *exec, enum shape_mode mode, uint64_t size,
                      struct buf *out)
{
    struct session *session = exec->job.session;
    const struct exec_kept *kept = &session->kept;
    bool found;

    mutex_lock(&session->lock);
    found = kept->n == exec->n && kept->mode == mode && kept->size == size &&
            buf_add(out, buf_str(&kept->text), kept->text.size) == 0;
    mutex_unlock(&session->lock);
    return found;
}

static void keep(struct exec *exec, enum shape_mode mode, uint64_t size,
                 const struct buf *text)
{
    struct session *session = exec->job.session;
    struct exec_kept *kept = &session->kept;

    mutex_lock(&session->lock);
    buf_done(&kept->text);
    buf_init(&kept->text, ANSWER_MAX);
    kept->n =
        buf_add(&kept->text, buf_str(text), text->size) == 0 ? exec->n : 0;
    kept->mode = mode;
    kept->size = size;
    mutex_unlock(&session->lock);
}

static int answer_end(struct exec *exec, const struct exec_info *info,
                      enum shape_mode mode, struct buf *out, struct err *err)
{
    uint64_t size = exec_size(exec, EXEC_OUTPUT);
    struct buf text = BUF_INIT(ANSWER_MAX);
    int rc;

    if (size <= CACHED) {
        return make_end(exec, info, mode, out, err);
    }
    if (find_kept(exec, mode, size, out)) {
        return 0;
    }
    rc = make_end(exec, info, mode, &text, err);
    if (rc == 0) {
        keep(exec, mode, size, &text);
        rc = buf_add(out, text.data, text.size);
        rc = rc < 0 ? err_set(err, -rc, "cannot write the answer") : 0;
    }
    buf_done(&text);
    return rc;
}

int exec_answer(struct exec *exec, enum shape_mode mode, bool begun,
                struct buf *out, struct err *err)
{
    /* In this order: what is known of an ended one is final. */
    bool ended = exec_ended(exec);
    struct exec_info info;

    exec_info(exec, &info);
    return begun || !ended ? make_begin(&info, begun, out, err)
                           : answer_end(exec, &info, mode, out, err);
}
