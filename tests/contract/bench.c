/* The ground of the contract suite. See bench.h. */
#include "tests/contract/bench.h"

#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CALL_MS = 60000,
    WAIT_MS = 180000,
    KEEP_MAX = 4 * 1024 * 1024, /* Of each stream. */
};

static const struct provider_ops *ops;
static const char *config = "{}";
static atomic_uint_fast64_t next_n = 1;
static atomic_uint_fast64_t next_session = 1;

void bench_use(const char *name)
{
    for (size_t i = 0; provider_table[i]; i++) {
        if (strcmp(provider_table[i]->name, name) == 0) {
            ops = provider_table[i];
        }
    }
}

void bench_configure(const char *text)
{
    config = text;
}

const struct provider_ops *bench_ops(void)
{
    return ops;
}

bool bench_is_apart(void)
{
    return ops->limits != NULL;
}

static void check(int rc, const struct err *err)
{
    if (rc != 0) {
        print_error("%s\n", err->msg);
    }
    assert_int_equal(rc, 0);
}

/* ---- The provider ---- */

static void open_provider(struct bench *bench)
{
    struct err err = ERR_INIT;

    check(provider_open(ops, &bench->env, &bench->provider, &err), &err);
}

const struct limits *bench_limits(struct bench *bench)
{
    bench->limits.deadline_ms = clock_deadline(CALL_MS);
    return &bench->limits;
}

void bench_open(struct bench *bench)
{
    struct err err = ERR_INIT;

    memset(bench, 0, sizeof(*bench));
    scratch_make(bench->dir, sizeof(bench->dir));
    check(loop_new(&bench->loop, &err), &err);
    check(cancel_init(&bench->never, &err), &err);
    bench->env.state_dir = bench->dir;
    bench->env.loop = bench->loop;
    bench->env.leave_s = 600;
    bench->env.uid = getuid();
    bench->env.gid = getgid();
    bench->limits.cancel = &bench->never;
    (void)bench_limits(bench);
    open_provider(bench);
}

void bench_reopen(struct bench *bench)
{
    provider_close(bench->provider);
    open_provider(bench);
}

void bench_open_again(struct bench *bench)
{
    open_provider(bench);
}

void bench_close(struct bench *bench)
{
    provider_close(bench->provider);
    loop_free(bench->loop);
    cancel_done(&bench->never);
    scratch_remove(bench->dir);
}

int bench_own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 &&
                   /* One may go by itself meanwhile: with its directory. */
                   system("mount --make-rprivate / && "
                          "{ umount --all --lazy --types fuse.sessionfs; "
                          "mount --make-rshared /; }") == 0
               ? 0
               : -1;
}

/* ---- Sandboxes ---- */

void bench_name(struct bench *bench, struct bench_box *box)
{
    uint64_t number = atomic_fetch_add(&next_session, 1);

    memset(box, 0, sizeof(*box));
    (void)snprintf(box->dir, sizeof(box->dir), "%.200s/sessions", bench->dir);
    (void)mkdir(box->dir, 0700);
    (void)snprintf(box->dir, sizeof(box->dir), "%.200s/sessions/%llu",
                   bench->dir, (unsigned long long)number);
    assert_int_equal(mkdir(box->dir, 0700), 0);
    box->sandbox.number = number;
    box->sandbox.id = "contract";
    box->sandbox.dir = box->dir;
    box->sandbox.config = config;
    box->sandbox.instance = &box->instance;
}

void bench_create(struct bench *bench, struct bench_box *box)
{
    struct err err = ERR_INIT;

    bench_name(bench, box);
    check(provider_create(bench->provider, &box->sandbox, bench_limits(bench),
                          &err),
          &err);
}

void bench_destroy(struct bench *bench, struct bench_box *box)
{
    struct err err = ERR_INIT;

    check(provider_destroy(bench->provider, &box->sandbox, bench_limits(bench),
                           &err),
          &err);
    instance_done(&box->instance);
}

enum provider_state bench_status(struct bench *bench, struct bench_box *box)
{
    enum provider_state state = PROVIDER_LOST;
    struct err err = ERR_INIT;

    check(provider_status(bench->provider, &box->sandbox, bench_limits(bench),
                          &state, &err),
          &err);
    return state;
}

/* ---- Commands ---- */

static void on_started(void *arg, int64_t pid)
{
    struct bench_run *run = arg;

    mutex_lock(&run->lock);
    run->faults += run->started || run->exited || run->closed;
    run->started++;
    run->pid = pid;
    mutex_unlock(&run->lock);
}

static void on_output(void *arg, enum command_stream stream, const void *data,
                      size_t size)
{
    struct bench_run *run = arg;
    struct buf *out = &run->out[stream];

    mutex_lock(&run->lock);
    run->faults += !run->started || run->closed || size == 0;
    run->bytes[stream] += size;
    if (out->size + size <= out->cap && buf_add(out, data, size) < 0) {
        run->faults++;
    }
    cond_broadcast(&run->change);
    mutex_unlock(&run->lock);
}

static void on_exited(void *arg, const struct command_result *result)
{
    struct bench_run *run = arg;

    mutex_lock(&run->lock);
    run->faults += !run->started || run->exited || run->closed;
    run->exited++;
    run->exited_ms = clock_ms();
    run->result = *result;
    cond_broadcast(&run->change);
    mutex_unlock(&run->lock);
}

static void on_closed(void *arg)
{
    struct bench_run *run = arg;

    mutex_lock(&run->lock);
    run->faults += !run->exited || run->closed;
    run->closed++;
    cond_broadcast(&run->change);
    mutex_unlock(&run->lock);
}

const struct command_sink bench_sink = {
    .started = on_started,
    .output = on_output,
    .exited = on_exited,
    .closed = on_closed,
};

void bench_run_init(struct bench_run *run)
{
    struct err err = ERR_INIT;

    memset(run, 0, sizeof(*run));
    check(cancel_init(&run->cancel, &err), &err);
    mutex_init(&run->lock);
    cond_init(&run->change);
    buf_init(&run->out[0], KEEP_MAX);
    buf_init(&run->out[1], KEEP_MAX);
}

void bench_run_done(struct bench_run *run)
{
    buf_done(&run->out[0]);
    buf_done(&run->out[1]);
    cond_done(&run->change);
    mutex_done(&run->lock);
    cancel_done(&run->cancel);
}

void bench_start(struct bench *bench, struct bench_box *box,
                 const struct command *command, struct bench_run *run)
{
    struct limits limits = {.deadline_ms = clock_deadline(CALL_MS),
                            .cancel = &run->cancel};
    struct err err = ERR_INIT;

    check(provider_exec(bench->provider, &box->sandbox, command, &limits,
                        &bench_sink, run, &err),
          &err);
}

uint64_t bench_next(void)
{
    return atomic_fetch_add(&next_n, 1);
}

uint64_t bench_script(struct bench *bench, struct bench_box *box,
                      const char *script, struct bench_run *run)
{
    struct command command = {
        .n = bench_next(), .shell = script, .shell_size = strlen(script)};

    bench_run_init(run);
    bench_start(bench, box, &command, run);
    return command.n;
}

/* Waits until one of the two counts is there. */
static void await(struct bench_run *run, const unsigned *count)
{
    int64_t deadline = clock_deadline(WAIT_MS);
    int rc = 0;

    mutex_lock(&run->lock);
    while (*count == 0 && rc == 0) {
        rc = cond_wait(&run->change, &run->lock, deadline);
    }
    mutex_unlock(&run->lock);
    assert_int_equal(rc, 0);
}

struct command_result bench_exited(struct bench_run *run)
{
    await(run, &run->exited);
    return run->result;
}

void bench_closed(struct bench_run *run)
{
    await(run, &run->closed);
    assert_int_equal(run->faults, 0);
    assert_int_equal(run->started, 1);
}

void bench_says(struct bench_run *run, const char *text)
{
    int64_t deadline = clock_deadline(WAIT_MS);
    int rc = 0;

    mutex_lock(&run->lock);
    while (!strstr(buf_str(&run->out[COMMAND_STDOUT]), text) && rc == 0) {
        rc = cond_wait(&run->change, &run->lock, deadline);
    }
    mutex_unlock(&run->lock);
    assert_int_equal(rc, 0);
}

const char *bench_text(struct bench_run *run, enum command_stream stream)
{
    return buf_str(&run->out[stream]);
}

int bench_sh(struct bench *bench, struct bench_box *box, const char *script,
             const char *expect)
{
    struct bench_run run;
    struct command_result result;

    (void)bench_script(bench, box, script, &run);
    bench_closed(&run);
    result = run.result;
    if (expect) {
        if (strcmp(bench_text(&run, COMMAND_STDOUT), expect) != 0) {
            print_error("stderr: %s\n", bench_text(&run, COMMAND_STDERR));
        }
        assert_string_equal(bench_text(&run, COMMAND_STDOUT), expect);
    }
    bench_run_done(&run);
    return result.end == COMMAND_KILLED ? 128 + result.signal : result.code;
}

void bench_compute(struct bench *bench, struct bench_box *box)
{
    char script[128];

    (void)snprintf(script, sizeof(script),
                   "perl -e '1 while 1; # nothing.%d' >/dev/null 2>&1 &",
                   (int)getpid());
    assert_int_equal(bench_sh(bench, box, script, ""), 0);
}

bool bench_is_idle(void)
{
    char script[256];

    (void)snprintf(script, sizeof(script),
                   "p=$(pgrep -f '[n]othing.%d') && "
                   "a=$(cut -d' ' -f14,15 /proc/$p/stat) && sleep 0.4 && "
                   "[ \"$a\" = \"$(cut -d' ' -f14,15 /proc/$p/stat)\" ]",
                   (int)getpid());
    return system(script) == 0;
}

void bench_computes(void)
{
    int64_t deadline = clock_deadline(CALL_MS);

    while (bench_is_idle()) {
        assert_true(clock_ms() < deadline);
    }
}

bool bench_has_shell(struct bench *bench, struct bench_box *box)
{
    static int known = -1;

    if (known < 0) {
        struct bench_run run;

        (void)bench_script(bench, box, "printf '%s' \"$((6 * 7))\"", &run);
        bench_closed(&run);
        known = strcmp(bench_text(&run, COMMAND_STDOUT), "42") == 0;
        bench_run_done(&run);
    }
    return known;
}

const char *bench_pick(struct bench *bench, struct bench_box *box,
                       const char *shell, const char *plain)
{
    return bench_has_shell(bench, box) ? shell : plain;
}

int bench_group_setup(void **state)
{
    struct bench *bench = malloc(sizeof(*bench));

    assert_non_null(bench);
    bench_open(bench);
    *state = bench;
    return 0;
}

int bench_group_teardown(void **state)
{
    bench_close(*state);
    free(*state);
    return 0;
}

int bench_open_room(void **state)
{
    struct bench_room *room = malloc(sizeof(*room));

    assert_non_null(room);
    bench_open(&room->bench);
    bench_create(&room->bench, &room->box);
    *state = room;
    return 0;
}

int bench_close_room(void **state)
{
    struct bench_room *room = *state;

    bench_destroy(&room->bench, &room->box);
    bench_close(&room->bench);
    free(room);
    return 0;
}
