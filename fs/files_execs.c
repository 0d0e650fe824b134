/* The files of a session's commands: execs/last and execs/N/. */
#include "core/buf.h"
#include "core/exec.h"
#include "core/session.h"
#include "fs/files.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int put(struct err *err, int rc)
{
    return rc < 0 ? err_set(err, -rc, "cannot show it") : 0;
}

/* A number as we write it: no sign, no leading zero. */
static bool parse_number(const char *name, uint64_t *out)
{
    uint64_t n = 0;

    if (*name < '1' || *name > '9') {
        return false;
    }
    for (; *name; name++) {
        if (*name < '0' || *name > '9' || n > (UINT64_MAX - 9) / 10) {
            return false;
        }
        n = n * 10 + (uint64_t)(*name - '0');
    }
    *out = n;
    return true;
}

static int last_show(const struct node_ctx *ctx, struct buf *out,
                     struct err *err)
{
    struct exec *exec = NULL;
    int rc = session_exec_last(ctx->session, &exec, err);

    if (rc < 0) {
        return rc;
    }
    rc = buf_printf(out, "%" PRIu64, exec_number(exec));
    exec_unref(exec);
    return put(err, rc);
}

static int status_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    struct exec_info info;

    exec_info(ctx->exec, &info);
    return put(err, buf_printf(out, "%s\n", exec_status_name(info.status)));
}

/* Empty until the command has ended with a code. */
static int exit_code_show(const struct node_ctx *ctx, struct buf *out,
                          struct err *err)
{
    struct exec_info info;

    exec_info(ctx->exec, &info);
    if (!info.has_exit_code) {
        return 0;
    }
    return put(err, buf_printf(out, "%d\n", info.exit_code));
}

static int error_show(const struct node_ctx *ctx, struct buf *out,
                      struct err *err)
{
    struct exec_info info;

    exec_info(ctx->exec, &info);
    if (!info.err.code) {
        return 0;
    }
    return put(err, buf_printf(out, "%s\n", info.err.msg));
}

/* All of the answer that there can be. */
static int result_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    return exec_answer(ctx->exec, SHAPE_FULL, false, out, err);
}

/* ---- signal ---- */

int files_nothing_show(const struct node_ctx *ctx, struct buf *out,
                       struct err *err)
{
    (void)ctx;
    (void)out;
    (void)err;
    return 0;
}

static int find_signal(const char *name)
{
    const char *text = strncasecmp(name, "SIG", 3) == 0 ? name + 3 : name;
    uint64_t n = 0;

    if (parse_number(name, &n)) {
        return n < NSIG ? (int)n : 0;
    }
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);

        if (known && strcasecmp(known, text) == 0) {
            return i;
        }
    }
    return 0;
}

static void signal_store(const struct node_ctx *ctx, const char *text,
                         done_fn *done, void *arg)
{
    struct err err = ERR_INIT;
    int signal = find_signal(text);
    int rc = signal ? exec_signal(ctx->exec, signal, &ctx->caller, &err)
                    : err_set(&err, EINVAL, "'%.64s' is no signal", text);

    done(arg, rc, &err);
}

static int command_show(const struct node_ctx *ctx, struct buf *out,
                        struct err *err)
{
    return exec_command(ctx->exec, out, err);
}

/* ---- stdout, stderr, output: grow while the command runs ---- */

static ssize_t view_read(struct file *file, enum exec_view view,
                         uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    ssize_t n = exec_read(file->exec, view, offset, out, size, err);

    if (n >= 0) {
        mutex_lock(&file->lock);
        file->place = offset + (uint64_t)n;
        mutex_unlock(&file->lock);
    }
    return n;
}

static bool view_readable(struct file *file, enum exec_view view)
{
    uint64_t place;

    mutex_lock(&file->lock);
    place = file->place;
    mutex_unlock(&file->lock);
    return exec_ended(file->exec) || exec_size(file->exec, view) > place;
}

/* The size is learnt now: where a command is forgotten while its output is
 * open, a read must fail, and not find an empty output. */
static int view_init(struct file *file, struct err *err)
{
    (void)err;
    (void)exec_size(file->exec, EXEC_OUTPUT);
    return 0;
}

/* The functions of one view. */
#define VIEW(name, view)                                                       \
    static uint64_t name##_size(const struct node_ctx *ctx)                    \
    {                                                                          \
        return exec_size(ctx->exec, view);                                     \
    }                                                                          \
    static ssize_t name##_read(                                                \
        struct file *file, const struct file_call *call UNUSED,                \
        uint64_t offset, void *out, size_t size, struct err *err)              \
    {                                                                          \
        return view_read(file, view, offset, out, size, err);                  \
    }                                                                          \
    static bool name##_readable(struct file *file)                             \
    {                                                                          \
        return view_readable(file, view);                                      \
    }                                                                          \
    static const struct file_ops name##_ops = {                                \
        .size = name##_size,                                                   \
        .init = view_init,                                                     \
        .read = name##_read,                                                   \
        .readable = name##_readable,                                           \
    }

VIEW(output, EXEC_OUTPUT);
VIEW(stdout, EXEC_STDOUT);
VIEW(stderr, EXEC_STDERR);

/* ---- wait: the exit code, at the end ---- */

static uint64_t wait_size(const struct node_ctx *ctx)
{
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    struct err err = ERR_INIT;
    uint64_t size = 0;

    if (exec_ended(ctx->exec) && exit_code_show(ctx, &text, &err) == 0) {
        size = text.size;
    }
    buf_done(&text);
    return size;
}

static ssize_t wait_read(struct file *file, const struct file_call *call,
                         uint64_t offset, void *out, size_t size,
                         struct err *err)
{
    struct node_ctx ctx = {.exec = file->exec, .caller = call->caller};
    struct buf text = BUF_INIT(NODE_TEXT_MAX);
    size_t n = 0;
    int rc;

    if (!exec_ended(file->exec)) {
        return -EAGAIN;
    }
    rc = exit_code_show(&ctx, &text, err);
    if (rc < 0) {
        return rc;
    }
    if (offset < text.size) {
        n = text.size - (size_t)offset;
        n = n < size ? n : size;
        memcpy(out, text.data + offset, n);
    }
    buf_done(&text);
    return (ssize_t)n;
}

static struct exec *wait_watch(struct file *file, struct exec_watch *watch)
{
    struct exec *exec = exec_ref(file->exec);

    if (exec_watch_end(exec, watch)) {
        return exec;
    }
    exec_unref(exec);
    return NULL;
}

static bool wait_readable(struct file *file)
{
    return exec_ended(file->exec);
}

static const struct file_ops wait_ops = {
    .size = wait_size,
    .read = wait_read,
    .watch = wait_watch,
    .readable = wait_readable,
};

/* ---- The directories ---- */

static int commands_find(const struct node_ctx *ctx, const char *name,
                         struct node *out, struct err *err)
{
    struct exec *exec = NULL;
    uint64_t n = 0;
    int rc;

    if (!parse_number(name, &n)) {
        return err_set(err, ENOENT, "not a command's number");
    }
    rc = session_exec_find(ctx->session, n, &exec, err);
    if (rc < 0) {
        return rc;
    }
    exec_unref(exec);
    out->exec_n = n;
    return 0;
}

struct naming {
    bool (*fn)(void *arg, uint64_t number, const char *name);
    void *arg;
};

static bool name_command(void *arg, uint64_t n)
{
    const struct naming *naming = arg;
    char name[24];

    (void)snprintf(name, sizeof(name), "%" PRIu64, n);
    return naming->fn(naming->arg, n, name);
}

static int commands_list(const struct node_ctx *ctx, uint64_t after,
                         bool (*fn)(void *arg, uint64_t number,
                                    const char *name),
                         void *arg, struct err *err)
{
    struct naming naming = {fn, arg};

    return session_exec_each(ctx->session, after, name_command, &naming, err);
}

/* A file of execs/N that is shown, or one with functions of its own. */
#define SHOWN(name_, id_, show_)                                               \
    {                                                                          \
        .name = (name_), .id = (id_), .mode = S_IFREG | 0400, .show = (show_)  \
    }
#define SERVED(name_, id_, flags_, ops_)                                       \
    {                                                                          \
        .name = (name_), .id = (id_), .flags = (flags_),                       \
        .mode = S_IFREG | 0400, .ops = (ops_)                                  \
    }

static const struct node_row command_rows[] = {
    SHOWN("command", FILES_ID_COMMAND, command_show),
    SHOWN("status", FILES_ID_COMMAND_STATUS, status_show),
    SERVED("stdout", FILES_ID_COMMAND_STDOUT, 0, &stdout_ops),
    SERVED("stderr", FILES_ID_COMMAND_STDERR, 0, &stderr_ops),
    SERVED("output", FILES_ID_COMMAND_OUTPUT, 0, &output_ops),
    SHOWN("exit_code", FILES_ID_COMMAND_EXIT_CODE, exit_code_show),
    SHOWN("error", FILES_ID_COMMAND_ERROR, error_show),
    SHOWN("result.json", FILES_ID_COMMAND_RESULT, result_show),
    {
        .name = "signal",
        .id = FILES_ID_COMMAND_SIGNAL,
        .mode = S_IFREG | 0600,
        .show = files_nothing_show,
        .store = signal_store,
    },
    SERVED("changes", FILES_ID_COMMAND_CHANGES, 0, &files_command_changes_ops),
    SERVED("wait", FILES_ID_COMMAND_WAIT, NODE_UNLISTED, &wait_ops),
    {.name = NULL},
};

static const struct node_row command_dir = {
    .name = "N",
    .id = FILES_ID_COMMAND_DIR,
    .mode = S_IFDIR | 0700,
    .up = &files_session_rows[FILES_EXECS_ROW],
    .rows = command_rows,
};

const struct node_children files_commands = {
    .row = &command_dir,
    .find = commands_find,
    .list = commands_list,
};

const struct node_row files_execs_rows[] = {
    {
        .name = "last",
        .id = FILES_ID_LAST,
        .flags = NODE_OPTIONAL,
        .mode = S_IFLNK | 0777,
        .show = last_show,
    },
    {.name = NULL},
};
