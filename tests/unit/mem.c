/* The provider `mem`: what tests of everything else rely on. */
#include "core/buf.h"
#include "core/clock.h"
#include "core/loop.h"
#include "core/mutex.h"
#include "core/provider.h"

#include "tests/cmocka.h"
#include "tests/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct provider_ops provider_mem;

/* A sandbox, and what its one command has told. */
struct bench {
    char control[64];
    struct loop *loop;
    struct provider *provider;
    struct instance instance;
    struct sandbox sandbox;
    struct cancel cancel;
    struct limits limits;
    struct err err;

    struct mutex lock;
    struct cond change;
    struct buf out, errors; /* By lock, like all below. */
    struct command_result result;
    size_t out_at_exit;
    unsigned started, exited, closed;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    struct provider_env env = {.state_dir = "/nonexistent"};

    scratch_make(b->control, sizeof(b->control));
    assert_int_equal(setenv("SESSIONFS_MEM_CONTROL", b->control, 1), 0);
    assert_int_equal(loop_new(&b->loop, &b->err), 0);
    env.loop = b->loop;
    assert_int_equal(provider_open(&provider_mem, &env, &b->provider, &b->err),
                     0);
    assert_int_equal(cancel_init(&b->cancel, &b->err), 0);
    b->limits = (struct limits){clock_deadline(10000), &b->cancel};
    b->sandbox = (struct sandbox){.number = 3,
                                  .id = "box",
                                  .dir = "/nonexistent",
                                  .config = "{}",
                                  .instance = &b->instance};
    mutex_init(&b->lock);
    cond_init(&b->change);
    buf_init(&b->out, 64 * 1024 * 1024);
    buf_init(&b->errors, 4096);
    *state = b;
    return provider_create(b->provider, &b->sandbox, &b->limits, &b->err);
}

static int teardown(void **state)
{
    struct bench *b = *state;

    provider_close(b->provider);
    loop_free(b->loop);
    cancel_done(&b->cancel);
    instance_done(&b->instance);
    buf_done(&b->out);
    buf_done(&b->errors);
    cond_done(&b->change);
    mutex_done(&b->lock);
    assert_int_equal(rmdir(b->control), 0);
    free(b);
    return 0;
}

static void on_started(void *arg, int64_t pid)
{
    struct bench *b = arg;

    (void)pid;
    mutex_lock(&b->lock);
    b->started++;
    cond_broadcast(&b->change);
    mutex_unlock(&b->lock);
}

static void on_output(void *arg, enum command_stream stream, const void *data,
                      size_t size)
{
    struct bench *b = arg;

    mutex_lock(&b->lock);
    (void)!buf_add(stream == COMMAND_STDOUT ? &b->out : &b->errors, data, size);
    mutex_unlock(&b->lock);
}

static void on_exited(void *arg, const struct command_result *result)
{
    struct bench *b = arg;

    mutex_lock(&b->lock);
    b->exited++;
    b->result = *result;
    b->out_at_exit = b->out.size;
    mutex_unlock(&b->lock);
}

static void on_closed(void *arg)
{
    struct bench *b = arg;

    mutex_lock(&b->lock);
    b->closed++;
    cond_broadcast(&b->change);
    mutex_unlock(&b->lock);
}

static const struct command_sink sink = {on_started, on_output, on_exited,
                                         on_closed, NULL};

static int start(struct bench *b, const char *script, int64_t timeout_ms)
{
    const struct command command = {.n = 1,
                                    .shell = script,
                                    .shell_size = strlen(script),
                                    .timeout_ms = timeout_ms};

    b->started = b->exited = b->closed = 0;
    buf_done(&b->out);
    buf_done(&b->errors);
    return provider_exec(b->provider, &b->sandbox, &command, &b->limits, &sink,
                         b, &b->err);
}

static void wait_for(struct bench *b, const unsigned *count)
{
    int64_t deadline = clock_deadline(10000);

    mutex_lock(&b->lock);
    while (!*count) {
        assert_int_equal(cond_wait(&b->change, &b->lock, deadline), 0);
    }
    mutex_unlock(&b->lock);
}

/* Runs a script to its end. */
static void run(struct bench *b, const char *script)
{
    assert_int_equal(start(b, script, 0), 0);
    wait_for(b, &b->closed);
    assert_int_equal(b->started, 1);
    assert_int_equal(b->exited, 1);
    assert_int_equal(b->closed, 1);
}

static void set_fault(const struct bench *b, const char *name, const char *text)
{
    char path[128];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/%s", b->control, name);
    if (!text) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

static enum provider_state status(struct bench *b)
{
    enum provider_state state = PROVIDER_LOST;

    assert_int_equal(
        provider_status(b->provider, &b->sandbox, &b->limits, &state, &b->err),
        0);
    return state;
}

static void commands_say_and_end_as_written(void **state)
{
    struct bench *b = *state;
    static const struct {
        const char *script, *out, *errors;
        int code;
    } rows[] = {
        {"echo a  b\necho c", "a  b\nc\n", "", 0},
        {"err oops\nexit 3\necho no", "", "oops\n", 3},
        {"nonsense x", "", "nonsense: not found\n", 127},
        {"# nothing\n\n:", "", "", 0},
        {"false", "", "", 1},
        {"pwd", "/workspace\n", "", 0},
        {"write f one two\nappend f three\ncat f", "one two\nthree\n", "", 0},
        {"cat /workspace/f", "one two\nthree\n", "", 0},
        {"mkdir d\nwrite d/g x\nrm d/g\ncat d/g", "", "d/g: no such file\n", 1},
        {"sleep 20\necho late", "late\n", "", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        run(b, rows[i].script);
        assert_string_equal(buf_str(&b->out), rows[i].out);
        assert_string_equal(buf_str(&b->errors), rows[i].errors);
        assert_int_equal(b->result.end, COMMAND_EXITED);
        assert_int_equal(b->result.code, rows[i].code);
    }
}

static void a_flood_arrives_whole(void **state)
{
    struct bench *b = *state;

    run(b, "spam 10000000\necho end");
    assert_int_equal(b->out.size, 10000004);
}

static void output_may_come_after_the_end(void **state)
{
    struct bench *b = *state;

    run(b, "later 20 left behind\necho now");
    assert_string_equal(buf_str(&b->out), "now\nleft behind\n");
    assert_int_equal(b->out_at_exit, 4);
}

static void a_command_can_be_ended_in_every_way(void **state)
{
    struct bench *b = *state;

    run(b, "kill 11");
    assert_int_equal(b->result.end, COMMAND_KILLED);
    assert_int_equal(b->result.signal, SIGSEGV);

    assert_int_equal(start(b, "hang", 30), 0);
    wait_for(b, &b->closed);
    assert_int_equal(b->result.end, COMMAND_TIMEOUT);

    assert_int_equal(start(b, "hang", 0), 0);
    wait_for(b, &b->started);
    assert_int_equal(
        provider_signal(b->provider, &b->sandbox, 2, SIGTERM, &b->err), -ESRCH);
    assert_int_equal(
        provider_signal(b->provider, &b->sandbox, 1, SIGTERM, &b->err), 0);
    wait_for(b, &b->closed);
    assert_int_equal(b->result.end, COMMAND_KILLED);
    assert_int_equal(b->result.signal, SIGTERM);

    assert_int_equal(start(b, "hang", 0), 0);
    wait_for(b, &b->started);
    assert_int_equal(
        provider_pause(b->provider, &b->sandbox, &b->limits, &b->err), 0);
    wait_for(b, &b->closed);
    assert_int_equal(b->result.end, COMMAND_KILLED);
    assert_int_equal(start(b, "echo x", 0), -EHOSTDOWN);
    assert_int_equal(
        provider_resume(b->provider, &b->sandbox, &b->limits, &b->err), 0);

    assert_int_equal(start(b, "hang", 0), 0);
    cancel_fire(&b->cancel);
    wait_for(b, &b->closed);
    assert_int_equal(b->result.end, COMMAND_CANCELED);
}

static void closing_ends_what_runs(void **state)
{
    struct bench *b = *state;
    struct provider_env env = {.state_dir = "/nonexistent", .loop = b->loop};

    assert_int_equal(start(b, "hang", 0), 0);
    provider_close(b->provider);
    assert_int_equal(b->closed, 1);
    assert_int_equal(b->result.end, COMMAND_LOST);
    assert_int_equal(provider_open(&provider_mem, &env, &b->provider, &b->err),
                     0);
    assert_int_equal(status(b), PROVIDER_LOST); /* As after a restart. */
}

static void faults_do_what_they_say(void **state)
{
    struct bench *b = *state;
    int64_t before;

    set_fault(b, "exec", "errno ENOSPC\n");
    assert_int_equal(start(b, "echo x", 0), -ENOSPC);
    assert_int_equal(b->err.code, ENOSPC);
    assert_int_equal(b->started, 0);
    set_fault(b, "exec", NULL);
    set_fault(b, "exec@other", "errno EIO");
    run(b, "echo x");
    set_fault(b, "exec@other", NULL);

    set_fault(b, "status@box", "delay 40");
    before = clock_ms();
    assert_int_equal(status(b), PROVIDER_RUNNING);
    assert_true(clock_ms() - before >= 40);
    set_fault(b, "status@box", "stuck");
    assert_int_equal(
        provider_pause(b->provider, &b->sandbox, &b->limits, &b->err),
        0); /* Another operation is not. */
    b->limits.deadline_ms = clock_deadline(50);
    assert_int_equal(provider_status(b->provider, &b->sandbox, &b->limits,
                                     &(enum provider_state){PROVIDER_LOST},
                                     &b->err),
                     -ETIMEDOUT);
    cancel_fire(&b->cancel);
    assert_int_equal(provider_status(b->provider, &b->sandbox, &b->limits,
                                     &(enum provider_state){PROVIDER_LOST},
                                     &b->err),
                     -ECANCELED);
    set_fault(b, "status@box", NULL);
}

static void a_sandbox_can_change_behind_our_back(void **state)
{
    struct bench *b = *state;

    set_fault(b, "paused@box", "");
    assert_int_equal(status(b), PROVIDER_PAUSED);
    assert_int_equal(
        provider_resume(b->provider, &b->sandbox, &b->limits, &b->err), 0);
    assert_int_equal(status(b), PROVIDER_RUNNING);
    set_fault(b, "lost@box", "");
    assert_int_equal(status(b), PROVIDER_LOST);
    assert_int_equal(
        provider_resume(b->provider, &b->sandbox, &b->limits, &b->err),
        -ESTALE);
    assert_int_equal(
        provider_destroy(b->provider, &b->sandbox, &b->limits, &b->err), 0);
}

#define MEM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MEM_TEST(commands_say_and_end_as_written),
        MEM_TEST(a_flood_arrives_whole),
        MEM_TEST(output_may_come_after_the_end),
        MEM_TEST(a_command_can_be_ended_in_every_way),
        MEM_TEST(closing_ends_what_runs),
        MEM_TEST(faults_do_what_they_say),
        MEM_TEST(a_sandbox_can_change_behind_our_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
