/*
 * `jsonl` and the beasts of fakes/zoo.py: whatever its program does, whoever
 * called gets a clear error or the right answer, in time, and the session
 * works again, mostly at once.
 * usage: contract_zoo CONFIG, by fakes/with_program.sh zoo.py
 */
#include "tests/contract/zoo.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/log.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    SHORT_MS = 400, /* For calls that will not be answered. */
    LONG_MS = 10000,
    SLACK_MS = 3000, /* For a busy machine. */
};

/* ---- Calls ---- */

static void arm(const struct zoo_row *row)
{
    char path[300];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%s %s", row->beast, row->method);
    assert_int_equal(fclose(file), 0);
}

static bool is_armed(void)
{
    char path[300];

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    return access(path, F_OK) == 0;
}

/* Also those that leave get the time for it: who asks one that is about to
 * leave is told that it has. */
static void disarm(const struct zoo_row *row)
{
    char path[300];

    if (row && strstr("leaves_after_the_answer no_end_of_line", row->beast)) {
        (void)poll(NULL, 0, 100);
    }

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    (void)unlink(path);
}

static void check_rc(const struct zoo_row *row, int rc, const struct err *err)
{
    if (rc != row->rc || (rc < 0 && !strstr(err->msg, row->says))) {
        print_error("%s at %s: %d, '%s'\n", row->beast, row->method, rc,
                    err->msg);
    }
    assert_int_equal(rc, row->rc);
    assert_int_equal(err->code, -rc);
    if (rc < 0) {
        assert_non_null(strstr(err->msg, row->says));
        assert_true(strlen(err->msg) < 400 && !strchr(err->msg, '\n'));
    }
}

static struct limits within(struct bench_room *room, int64_t ms)
{
    return (struct limits){.deadline_ms = clock_deadline(ms),
                           .cancel = &room->bench.never};
}

static int64_t patience(const struct zoo_row *row)
{
    return row->rc == -ETIMEDOUT ? SHORT_MS : LONG_MS;
}

static int run_script(struct bench_room *room, int64_t ms, const char *text,
                      struct buf *out, struct err *err)
{
    static const char *const none[] = {NULL};
    const struct provider_script script = {
        .text = text, .args = none, .most = 1 << 20};
    struct limits limits = within(room, ms);
    int code = -1;

    return provider_run(room->bench.provider, &room->box.sandbox, &script,
                        &limits, out, &code, err);
}

/* All is well with the session. */
static void works(struct bench_room *room)
{
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;

    assert_int_equal(run_script(room, LONG_MS, "echo well", &out, &err), 0);
    assert_string_equal(buf_str(&out), "well\n");
    buf_done(&out);
    assert_int_equal(
        bench_sh(&room->bench, &room->box, "echo well; exit 5", "well\n"), 5);
}

/* ---- Short calls ---- */

static void a_short_call_survives(struct bench_room *room,
                                  const struct zoo_row *row)
{
    struct buf out = BUF_INIT(1 << 20);
    struct err err = ERR_INIT;
    int64_t begin = clock_ms();
    int rc;

    arm(row);
    rc = run_script(room, patience(row), "echo well", &out, &err);
    check_rc(row, rc, &err);
    assert_true(clock_ms() - begin <= patience(row) + SLACK_MS);
    if (rc == 0) {
        assert_string_equal(buf_str(&out), row->says);
    } else {
        assert_int_equal(out.size, 0);
    }
    buf_done(&out);
    disarm(row);
    works(room);
}

static void short_calls_survive(void **state)
{
    for (size_t i = 0; i < zoo_quick_count; i++) {
        a_short_call_survives(*state, &zoo_quick[i]);
    }
}

/* ---- Commands ---- */

/* A failure is one of the start, or of the command, which is lost then. */
static void a_command_survives(struct bench_room *room,
                               const struct zoo_row *row)
{
    static const char text[] = "echo well";
    const struct command command = {
        .n = bench_next(), .shell = text, .shell_size = strlen(text)};
    struct limits limits = within(room, LONG_MS);
    struct err err = ERR_INIT;
    struct bench_run run;
    int rc;

    bench_run_init(&run);
    limits.cancel = &run.cancel;
    arm(row);
    rc = provider_exec(room->bench.provider, &room->box.sandbox, &command,
                       &limits, &bench_sink, &run, &err);
    if (rc == 0) {
        bench_closed(&run);
        err = run.result.why;
        rc = -err.code;
    }
    check_rc(row, rc, &err);
    if (rc == 0) {
        assert_int_equal(run.result.end, COMMAND_EXITED);
        assert_string_equal(bench_text(&run, COMMAND_STDOUT), row->says);
    } else if (run.exited) {
        assert_int_equal(run.result.end, COMMAND_LOST);
    }
    bench_run_done(&run);
    disarm(row);
    works(room);
}

static void commands_survive(void **state)
{
    for (size_t i = 0; i < zoo_command_count; i++) {
        a_command_survives(*state, &zoo_command[i]);
    }
}

static void exit_codes_are_those_of_the_answer(void **state)
{
    struct bench_room *room = *state;

    arm(&(struct zoo_row){.beast = "two_exit_codes", .method = "exec"});
    assert_int_equal(bench_sh(&room->bench, &room->box, "exit 1", ""), 4);
    arm(&(struct zoo_row){.beast = "the_code_in_the_event", .method = "exec"});
    assert_int_equal(bench_sh(&room->bench, &room->box, "exit 1", ""), 4);
}

/* Nothing that we could do ends them but the end of their processes. */
static void commands_that_hang_are_given_up(void **state)
{
    static const char *const beasts[] = {"hangs", "hangs_in_the_middle",
                                         "ignores_term"};
    static const char text[] = "echo well";
    struct bench_room *room = *state;
    struct bench_run runs[ARRAY_SIZE(beasts)];
    int64_t begin;

    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        const struct command command = {.n = bench_next(),
                                        .shell = text,
                                        .shell_size = strlen(text),
                                        .timeout_ms = i ? 0 : 2500};

        arm(&(struct zoo_row){.beast = beasts[i], .method = "exec"});
        bench_run_init(&runs[i]);
        bench_start(&room->bench, &room->box, &command, &runs[i]);
        assert_false(is_armed());
    }
    begin = clock_ms();
    cancel_fire(&runs[1].cancel);
    cancel_fire(&runs[2].cancel);
    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        bench_closed(&runs[i]);
        assert_int_equal(runs[i].result.end,
                         i ? COMMAND_CANCELED : COMMAND_TIMEOUT);
        assert_non_null(strstr(runs[i].result.why.msg, "may still run"));
        bench_run_done(&runs[i]);
    }
    assert_true(clock_ms() - begin < 2500 + 2000 + SLACK_MS);
    works(room);
}

/* A program without spawn, or whose spawn fails, ends commands all the same. */
static void a_command_ends_without_spawn(void **state)
{
    static const char *const beasts[] = {"no_such_method", "dies", "words"};
    struct bench_room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(beasts); i++) {
        struct bench_run run;

        (void)bench_script(&room->bench, &room->box, "echo go; sleep 4321",
                           &run);
        bench_says(&run, "go\n");
        arm(&(struct zoo_row){.beast = beasts[i], .method = "spawn"});
        cancel_fire(&run.cancel);
        bench_closed(&run);
        assert_false(is_armed());
        assert_int_equal(run.result.end, COMMAND_CANCELED);
        assert_int_equal(run.result.why.code, 0);
        bench_run_done(&run);
    }
}

/* ---- Whole files ---- */

static int memory_file(char byte, size_t size)
{
    int fd = memfd_create("content", MFD_CLOEXEC);
    AUTO_FREE char *data = malloc(size);

    assert_true(fd >= 0);
    assert_non_null(data);
    memset(data, byte, size);
    assert_int_equal(write(fd, data, size), size);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void a_file_call_survives(struct bench_room *room,
                                 const struct zoo_row *row)
{
    bool reads = strcmp(row->method, "read_file") == 0;
    AUTO_FD int fd = memory_file('w', 5000);
    struct limits limits = within(room, patience(row));
    struct err err = ERR_INIT;
    int rc;

    arm(row);
    rc = reads ? provider_read_file(room->bench.provider, &room->box.sandbox,
                                    "file", fd, &limits, &err)
               : provider_write_file(room->bench.provider, &room->box.sandbox,
                                     "file", fd, &limits, &err);
    check_rc(row, rc, &err);
    disarm(row);
    works(room);
}

static void file_calls_survive(void **state)
{
    struct bench_room *room = *state;

    assert_int_equal(bench_sh(&room->bench, &room->box, "echo x >file", ""), 0);
    for (size_t i = 0; i < zoo_file_count; i++) {
        a_file_call_survives(room, &zoo_file[i]);
    }
}

static void a_line_may_have_eleven_megabytes(void **state)
{
    struct bench_room *room = *state;
    size_t size = 8 * 1024 * 1024;
    AUTO_FD int fd = memory_file('q', size);
    AUTO_FD int back = memfd_create("back", MFD_CLOEXEC);
    struct limits limits = within(room, LONG_MS);
    struct err err = ERR_INIT;
    AUTO_FREE char *a = malloc(size);

    assert_int_equal(provider_write_file(room->bench.provider,
                                         &room->box.sandbox, "big", fd, &limits,
                                         &err),
                     0);
    assert_int_equal(provider_read_file(room->bench.provider,
                                        &room->box.sandbox, "big", back,
                                        &limits, &err),
                     0);
    assert_int_equal(pread(back, a, size, 0), size);
    assert_true(a[0] == 'q' && memcmp(a, a + 1, size - 1) == 0);
}

/* Its process reads no more: the request is longer than a pipe holds. */
static void a_program_that_stops_reading_is_replaced(void **state)
{
    const struct zoo_row row = {"stops_reading", "exec", -ETIMEDOUT,
                                "did not answer"};
    struct bench_room *room = *state;
    AUTO_FD int fd = memory_file('q', 4 * 1024 * 1024);
    struct limits limits = within(room, LONG_MS);
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;
    int rc;

    arm(&row);
    assert_int_equal(run_script(room, LONG_MS, "echo well", &out, &err), 0);
    buf_done(&out);
    limits = within(room, SHORT_MS);
    rc = provider_write_file(room->bench.provider, &room->box.sandbox, "big",
                             fd, &limits, &err);
    check_rc(&row, rc, &err);
    works(room);
}

/* ---- Life ---- */

static void an_open_survives(struct bench_room *room, const struct zoo_row *row)
{
    struct limits limits = within(room, patience(row));
    struct err err = ERR_INIT;
    struct bench_box box;
    int rc;

    bench_name(&room->bench, &box);
    arm(row);
    rc = provider_create(room->bench.provider, &box.sandbox, &limits, &err);
    check_rc(row, rc, &err);
    disarm(row);
    if (rc == 0) {
        assert_int_equal(bench_sh(&room->bench, &box, "echo well", "well\n"),
                         0);
    } else {
        assert_null(box.instance.external_id);
    }
    bench_destroy(&room->bench, &box); /* What it left goes with its group. */
}

static void opens_survive(void **state)
{
    for (size_t i = 0; i < zoo_open_count; i++) {
        an_open_survives(*state, &zoo_open[i]);
    }
    works(*state);
}

static void a_close_survives(struct bench_room *room, const struct zoo_row *row)
{
    struct limits limits = within(room, patience(row));
    struct err err = ERR_INIT;
    struct bench_box box;
    int rc;

    bench_create(&room->bench, &box);
    arm(row);
    rc = provider_destroy(room->bench.provider, &box.sandbox, &limits, &err);
    check_rc(row, rc, &err);
    disarm(row);
    bench_destroy(&room->bench, &box); /* Tried again, it is gone. */
}

static void closes_survive(void **state)
{
    struct bench_room *room = *state;

    for (size_t i = 0; i < zoo_close_count; i++) {
        a_close_survives(room, &zoo_close[i]);
    }
    works(room);
}

static void a_session_that_nobody_knows_is_lost(void **state)
{
    const struct zoo_row row = {"session_unknown", "exec", -ESTALE, "who?"};
    struct bench_room *room = *state;
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;
    struct bench_box box;

    arm(&row);
    check_rc(&row, run_script(room, LONG_MS, "echo", &out, &err), &err);
    buf_done(&out);
    /* Asked again it is there, and the state is what was seen last. */
    assert_int_equal(bench_status(&room->bench, &room->box), PROVIDER_RUNNING);
    works(room);
    bench_create(&room->bench, &box);
    assert_int_equal(bench_sh(&room->bench, &box, "rm -rf \"$PWD\"", ""), 0);
    assert_int_equal(
        provider_resume(room->bench.provider, &box.sandbox,
                        &(struct limits){.deadline_ms = clock_deadline(LONG_MS),
                                         .cancel = &room->bench.never},
                        &err),
        -ESTALE);
    assert_int_equal(bench_status(&room->bench, &box), PROVIDER_LOST);
    bench_destroy(&room->bench, &box);
}

static void an_engine_that_is_silent_is_unreachable(void **state)
{
    static const struct zoo_row rows[] = {
        {"dies", "capabilities", -ENOTCONN, "no more disk"},
        {"words", "capabilities", -ENOTCONN, "sent no JSON"},
        {"hangs", "capabilities", -ETIMEDOUT, "did not answer"},
        {"no_such_method", "capabilities", 0, NULL},
    };
    struct bench_room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct limits limits = within(room, patience(&rows[i]));
        enum provider_state seen = PROVIDER_LOST;
        struct err err = ERR_INIT;
        int rc;

        arm(&rows[i]);
        rc = provider_status(room->bench.provider, &room->box.sandbox, &limits,
                             &seen, &err);
        check_rc(&rows[i], rc, &err);
        assert_int_equal(bench_status(&room->bench, &room->box),
                         PROVIDER_RUNNING);
    }
}

static void a_program_that_cannot_be_started_is_named(void **state)
{
    static const struct {
        const char *config;
        int rc;
        const char *says;
    } rows[] = {
        {"{\"program\":\"/no/such/program\"}", -ENOTCONN, "No such file"},
        {"{\"program\":\"/etc/passwd\"}", -ENOTCONN, "Permission denied"},
        {"{\"program\":\"true\",\"argv\":[]}", -ENOTCONN, "status 0"},
        {"{\"program\":\"false\"}", -ENOTCONN, "status 1"},
        {"{\"program\":\"cat\",\"argv\":[]}", -EPROTO, "without an id"},
        {"{\"program\":\"echo\"}", -EPROTO, "sent no JSON"},
        {"{\"program\":\"sh\",\"argv\":[\"-c\",\"echo bad key >&2; exit 7\"]}",
         -ENOTCONN, "status 7: bad key"},
        {"{\"program\":\"yes\"}", -EPROTO, "sent no JSON"},
        {"{\"program\":\"\"}", -EINVAL, "needs a 'program'"},
        {"{}", -EINVAL, "needs a 'program'"},
    };
    struct bench_room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct zoo_row row = {rows[i].config, "open", rows[i].rc,
                                    rows[i].says};
        struct limits limits = within(room, LONG_MS);
        struct err err = ERR_INIT;
        struct bench_box box;
        int rc;

        bench_name(&room->bench, &box);
        box.sandbox.config = rows[i].config;
        rc = provider_create(room->bench.provider, &box.sandbox, &limits, &err);
        check_rc(&row, rc, &err);
    }
}

/* A long command keeps nothing waiting. */
static void files_are_used_beside_a_command(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;
    int64_t begin, took;

    (void)bench_script(&room->bench, &room->box, "echo go; sleep 60", &run);
    bench_says(&run, "go\n");
    begin = clock_ms();
    for (int i = 0; i < 4; i++) {
        works(room);
    }
    took = clock_ms() - begin;
    cancel_fire(&run.cancel);
    bench_closed(&run);
    bench_run_done(&run);
    assert_true(took < 20000);
}

static void a_shutdown_that_hangs_is_not_waited_for(void **state)
{
    struct bench_room *room = *state;
    int64_t begin;

    works(room);
    arm(&(struct zoo_row){.beast = "hangs", .method = "shutdown"});
    begin = clock_ms();
    bench_reopen(&room->bench);
    assert_true(clock_ms() - begin < 2000 + SLACK_MS);
    disarm(NULL);
    works(room);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_calls_survive),
        cmocka_unit_test(commands_survive),
        cmocka_unit_test(exit_codes_are_those_of_the_answer),
        cmocka_unit_test(commands_that_hang_are_given_up),
        cmocka_unit_test(a_command_ends_without_spawn),
        cmocka_unit_test(file_calls_survive),
        cmocka_unit_test(a_line_may_have_eleven_megabytes),
        cmocka_unit_test(a_program_that_stops_reading_is_replaced),
        cmocka_unit_test(opens_survive),
        cmocka_unit_test(closes_survive),
        cmocka_unit_test(a_session_that_nobody_knows_is_lost),
        cmocka_unit_test(an_engine_that_is_silent_is_unreachable),
        cmocka_unit_test(a_program_that_cannot_be_started_is_named),
        cmocka_unit_test(files_are_used_beside_a_command),
        cmocka_unit_test(a_shutdown_that_hangs_is_not_waited_for),
    };

    if (argc != 2 || !getenv("FAKE_ROOT")) {
        (void)fprintf(stderr, "usage: with_program.sh zoo.py %s\n", argv[0]);
        return 2;
    }
    log_setup(LOG_TO_STDERR, LOG_LEVEL_ERROR);
    bench_use("jsonl");
    bench_configure(argv[1]);
    return cmocka_run_group_tests_name("zoo", tests, bench_open_room,
                                       bench_close_room);
}
