/*
 * See run.h. The request is written to `exec.json`, so that it takes its turn
 * in the session's queue; `events` says which number it got; execs/N has all
 * the rest.
 */
#include "fs/run.h"

#include "core/cleanup.h"
#include "core/exec_request.h"
#include "core/json.h"
#include "fs/run_args.h"
#include "fs/run_follow.h"
#include "fs/run_request.h"
#include "fs/run_session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

enum {
    OUR_FAILURE = 125,
    NOT_RUNNABLE = 126,
    NOT_FOUND = 127,
    TEXT_MAX = 4 * 1024 * 1024,
};

struct run {
    struct run_args args;
    int session; /* Its directory. */
    int request; /* `exec.json`, open until the end. */
    int events;
    int signals;
    int command; /* execs/N */
    uint64_t n;
    int die_of; /* What ended the command and is to end us; 0: nothing. */
};

/* Reads a file from an offset to its end. */
static int read_rest(int fd, off_t offset, struct buf *out, struct err *err)
{
    static char chunk[64 * 1024];
    ssize_t n;
    int rc = 0;

    do {
        n = pread(fd, chunk, sizeof(chunk), offset);
        if (n > 0) {
            offset += n;
            rc = buf_add(out, chunk, (size_t)n);
        }
    } while (n > 0 && rc == 0);
    if (n < 0) {
        return err_errno(err, "read");
    }
    return rc < 0 ? err_set(err, -rc, "a file is too long") : 0;
}

static int read_text(int dir, const char *name, struct buf *out,
                     struct err *err)
{
    AUTO_FD int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? err_errno(err, "open") : read_rest(fd, 0, out, err);

    return rc < 0 ? err_wrap(err, rc, "%s", name) : 0;
}

/* ---- Failures ---- */

/* Lines are TIME OPERATION NAME PID ERRNO WORDS: the words of our last one. */
static const char *find_words(char *text)
{
    char mark[32];
    const char *words = NULL;
    char *save = NULL;

    (void)snprintf(mark, sizeof(mark), " %d E", (int)getpid());
    for (char *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        const char *at = strstr(line, mark);
        const char *blank = at ? strchr(at + strlen(mark), ' ') : NULL;

        words = blank ? blank + 1 : words;
    }
    return words;
}

/* What errno says of `exec.json`, with the session's words for it. */
static int refused(const struct run *run, const char *what, struct err *err)
{
    int rc = err_errno(err, "%s", what);
    struct buf text = BUF_INIT(TEXT_MAX);
    struct err none = ERR_INIT;

    if (read_text(run->session, "error", &text, &none) == 0 && text.size) {
        const char *words = find_words(text.data);

        rc = words ? err_set(err, -rc, "%s: %s", what, words) : rc;
    }
    buf_done(&text);
    return rc;
}

/* ---- The request ---- */

/* From here on they go to the command. What we were told to ignore, as by
 * nohup, is not ours to pass on. */
static int block_signals(int *out, struct err *err)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action;
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        if (sigaction(all[i], NULL, &action) == 0 &&
            action.sa_handler != SIG_IGN) {
            (void)sigaddset(&set, all[i]);
        }
    }
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    *out = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out < 0 ? err_errno(err, "signalfd") : 0;
}

/* One process writes it whole, or its part is dropped when we close. */
static int write_all(const struct run *run, const struct buf *text,
                     struct err *err)
{
    size_t done = 0;

    while (done < text->size) {
        ssize_t n = write(run->request, text->data + done, text->size - done);

        if (n < 0) {
            return refused(run, "the command is refused", err);
        }
        done += (size_t)n;
    }
    return 0;
}

/* A line of `events`: the number of a command that was queued, and whether it
 * is ours; 0: it tells of something else. */
static uint64_t read_event(const char *line, size_t size, bool *ours)
{
    struct err none = ERR_INIT;
    struct js *js = NULL;
    struct js *n, *pid;
    uint64_t found = 0;

    if (js_parse(line, size, &js, &none) < 0) {
        return 0;
    }
    n = js_is_object(js) ? js_get(js, "exec") : NULL;
    pid = js_is_object(js) ? js_get(js, "pid") : NULL;
    if (n && pid && js_text(js, "event") &&
        strcmp(js_text(js, "event"), "exec.queued") == 0) {
        found = (uint64_t)js_int(n);
        *ours = js_type(pid) == JS_INT && js_int(pid) == getpid();
    }
    js_free(n);
    js_free(pid);
    js_free(js);
    return found;
}

/* The command that was queued by us or, where the daemon sees other numbers of
 * processes than we do, the only one that was queued meanwhile. */
static uint64_t find_number(const struct buf *events)
{
    const char *line = buf_str(events);
    const char *end = strchr(line, '\n');
    uint64_t only = 0;
    unsigned count = 0;

    while (end) {
        bool ours = false;
        uint64_t n = read_event(line, (size_t)(end - line), &ours);

        if (ours) {
            return n;
        }
        only = n ? n : only;
        count += n != 0;
        line = end + 1;
        end = strchr(line, '\n');
    }
    return count == 1 ? only : 0;
}

static int learn_number(struct run *run, off_t before, struct err *err)
{
    struct buf events = BUF_INIT(TEXT_MAX);
    int rc = read_rest(run->events, before, &events, err);

    if (rc == 0) {
        run->n = find_number(&events);
        if (!run->n) {
            rc = err_set(err, ESRCH,
                         "the command is queued, but events do not tell its "
                         "number");
        }
    }
    buf_done(&events);
    return rc;
}

static int open_command(struct run *run, struct err *err)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "execs/%" PRIu64, run->n);
    run->command = openat(run->session, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return run->command < 0 ? err_errno(err, "%s", path) : 0;
}

static int open_files(struct run *run, struct err *err)
{
    int rc = run_session_open(run->args.session, run->args.mount, &run->session,
                              err);

    if (rc < 0) {
        return rc;
    }
    run->events = openat(run->session, "events", O_RDONLY | O_CLOEXEC);
    return run->events < 0 ? err_errno(err, "events") : 0;
}

/* Opening for writing waits until the sandbox runs. */
static int submit(struct run *run, const struct buf *text, struct err *err)
{
    struct stat st;
    int rc;

    run->request = openat(run->session, "exec.json", O_RDWR | O_CLOEXEC);
    if (run->request < 0) {
        return refused(run, "the session does not start", err);
    }
    rc = block_signals(&run->signals, err);
    if (rc < 0) {
        return rc;
    }
    if (fstat(run->events, &st) < 0) {
        return err_errno(err, "events");
    }
    rc = write_all(run, text, err);
    if (rc == 0) {
        rc = learn_number(run, st.st_size, err);
    }
    return rc < 0 ? rc : open_command(run, err);
}

static int ask(struct run *run, struct err *err)
{
    struct buf text = BUF_INIT(EXEC_REQUEST_MAX);
    int rc = open_files(run, err);

    if (rc == 0) {
        rc = run_request_make(&run->args, &text, err);
    }
    if (rc == 0) {
        rc = submit(run, &text, err);
    }
    buf_done(&text);
    return rc;
}

/* ---- The end ---- */

static int print_result(const struct run *run, struct err *err)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    int rc = read_text(run->command, "result.json", &text, err);

    if (rc == 0 && (fwrite(buf_str(&text), 1, text.size, stdout) != text.size ||
                    fflush(stdout) != 0)) {
        rc = err_errno(err, "standard output");
    }
    buf_done(&text);
    return rc;
}

/* As env(1) tells why a program did not run. */
static int code_of(int why)
{
    switch (why) {
    case ENOENT:
        return NOT_FOUND;
    case EACCES:
    case ENOEXEC:
        return NOT_RUNNABLE;
    default:
        return OUR_FAILURE;
    }
}

/* It has no exit code, or its record failed: the request's close and `error`
 * say why. */
static int tell_failure(struct run *run, bool ran, int *out, struct err *err)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    int fd = TAKE_FD(run->request);
    int why = close(fd) < 0 ? errno : 0;
    int rc = read_text(run->command, "error", &text, err);

    if (rc == 0) {
        (void)fprintf(stderr, "sessionfs run: command %" PRIu64 ": %s", run->n,
                      text.size ? text.data : "taken from the queue\n");
        *out = ran ? OUR_FAILURE : code_of(why);
    }
    buf_done(&text);
    return rc;
}

/* A shell goes on with its loop after a program that ended by itself, so what
 * came to us and ended the command ends us, too. SIGQUIT leaves a core. */
static int find_die_of(const struct run_followed *followed, int code)
{
    int taken = followed->taken;

    if (taken && taken != SIGQUIT && !followed->unread &&
        (code == 128 + taken || code == 128 + followed->signal)) {
        return taken;
    }
    return 0;
}

static int read_end(struct run *run, const struct run_followed *followed,
                    int *out, struct err *err)
{
    struct buf status = BUF_INIT(TEXT_MAX);
    struct buf code = BUF_INIT(TEXT_MAX);
    int rc = read_text(run->command, "status", &status, err);

    if (rc == 0) {
        rc = read_text(run->command, "exit_code", &code, err);
    }
    if (rc == 0 && followed->unread) {
        *out = 128 + SIGPIPE;
    } else if (rc == 0 && followed->signal && !code.size) {
        *out = 128 + followed->signal;
    } else if (rc == 0 &&
               (!code.size || strcmp(buf_str(&status), "failed\n") == 0)) {
        rc = tell_failure(run, code.size != 0, out, err);
    } else if (rc == 0) {
        *out = (int)strtol(code.data, NULL, 10);
    }
    run->die_of = rc == 0 ? find_die_of(followed, *out) : 0;
    buf_done(&status);
    buf_done(&code);
    return rc;
}

static int run_all(struct run *run, int *out, struct err *err)
{
    struct run_followed followed = {0, 0, false};
    int rc = ask(run, err);

    if (rc == 0) {
        rc = run_follow(run->command, run->signals, run->args.json, &followed,
                        err);
    }
    if (rc == 0 && run->args.json) {
        rc = print_result(run, err);
    }
    return rc < 0 ? rc : read_end(run, &followed, out, err);
}

static void die_of(int number)
{
    sigset_t set;

    (void)signal(number, SIG_DFL);
    (void)raise(number);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* Files that we open must not take the places of closed ones. */
static void fill_standard_fds(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) {
        (void)close(fd);
    }
}

int run_main(int argc, char **argv)
{
    struct run run = {.session = -1,
                      .request = -1,
                      .events = -1,
                      .signals = -1,
                      .command = -1};
    struct err err = ERR_INIT;
    int code = OUR_FAILURE;
    int rc;

    fill_standard_fds();
    (void)signal(SIGPIPE, SIG_IGN);
    rc = run_args_parse(argc, argv, &run.args, &err);
    if (rc == 0 && run.args.help) {
        run_args_help();
        code = EXIT_SUCCESS;
    } else if (rc == 0) {
        rc = run_all(&run, &code, &err);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "sessionfs run: %s\n", err.msg);
    }
    run_args_done(&run.args);
    if (run.die_of) {
        die_of(run.die_of);
    }
    return code;
}
