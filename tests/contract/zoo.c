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
#include <sys/resource.h>
#include <unistd.h>

/* ---- Calls ---- */

void zoo_arm(const struct zoo_row *row)
{
    char path[300];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    file = fopen(path, "w");
    assert_non_null(file);
    (void)fprintf(file, "%s %s", row->beast, row->method);
    assert_int_equal(fclose(file), 0);
}

bool zoo_is_armed(void)
{
    char path[300];

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    return access(path, F_OK) == 0;
}

/* Also those that leave get the time for it: who asks one that is about to
 * leave is told that it has. */
void zoo_disarm(const struct zoo_row *row)
{
    char path[300];

    if (row &&
        strstr(
            "leaves_after_the_answer no_end_of_line answers_and_leaves_a_child",
            row->beast)) {
        (void)poll(NULL, 0, 100);
    }

    (void)snprintf(path, sizeof(path), "%s/armed", getenv("FAKE_ROOT"));
    (void)unlink(path);
}

void zoo_check(const struct zoo_row *row, int rc, const struct err *err)
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

struct limits zoo_within(struct bench_room *room, int64_t ms)
{
    return (struct limits){.deadline_ms = clock_deadline(ms),
                           .cancel = &room->bench.never};
}

static int64_t patience(const struct zoo_row *row)
{
    return row->rc == -ETIMEDOUT ? ZOO_SHORT_MS : ZOO_LONG_MS;
}

static int run_script(struct bench_room *room, int64_t ms, const char *text,
                      struct buf *out, struct err *err)
{
    static const char *const none[] = {NULL};
    const struct provider_script script = {
        .text = text, .args = none, .most = 1 << 20};
    struct limits limits = zoo_within(room, ms);
    int code = -1;

    return provider_run(room->bench.provider, &room->box.sandbox, &script,
                        &limits, out, &code, err);
}

/* All is well with the session. */
void zoo_works(struct bench_room *room)
{
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;

    assert_int_equal(run_script(room, ZOO_LONG_MS, "echo well", &out, &err), 0);
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

    zoo_arm(row);
    rc = run_script(room, patience(row), "echo well", &out, &err);
    zoo_check(row, rc, &err);
    assert_true(clock_ms() - begin <= patience(row) + ZOO_SLACK_MS);
    if (rc == 0) {
        assert_string_equal(buf_str(&out), row->says);
    } else {
        assert_int_equal(out.size, 0);
    }
    buf_done(&out);
    zoo_disarm(row);
    zoo_works(room);
    if (strcmp(row->beast, "closes_stderr") == 0) {
        bench_reopen(&room->bench); /* The next have words to say. */
    }
}

static void short_calls_survive(void **state)
{
    for (size_t i = 0; i < zoo_quick_count; i++) {
        a_short_call_survives(*state, &zoo_quick[i]);
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
    struct limits limits = zoo_within(room, patience(row));
    struct err err = ERR_INIT;
    int rc;

    zoo_arm(row);
    rc = reads ? provider_read_file(room->bench.provider, &room->box.sandbox,
                                    "file", fd, &limits, &err)
               : provider_write_file(room->bench.provider, &room->box.sandbox,
                                     "file", fd, &limits, &err);
    zoo_check(row, rc, &err);
    zoo_disarm(row);
    zoo_works(room);
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
    struct limits limits = zoo_within(room, ZOO_LONG_MS);
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
    struct limits limits = zoo_within(room, ZOO_LONG_MS);
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;
    int rc;

    zoo_arm(&row);
    assert_int_equal(run_script(room, ZOO_LONG_MS, "echo well", &out, &err), 0);
    buf_done(&out);
    limits = zoo_within(room, ZOO_SHORT_MS);
    rc = provider_write_file(room->bench.provider, &room->box.sandbox, "big",
                             fd, &limits, &err);
    zoo_check(&row, rc, &err);
    zoo_works(room);
}

/* ---- Life ---- */

static void an_open_survives(struct bench_room *room, const struct zoo_row *row)
{
    struct limits limits = zoo_within(room, patience(row));
    struct err err = ERR_INIT;
    struct bench_box box;
    int rc;

    bench_name(&room->bench, &box);
    zoo_arm(row);
    rc = provider_create(room->bench.provider, &box.sandbox, &limits, &err);
    zoo_check(row, rc, &err);
    zoo_disarm(row);
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
    zoo_works(*state);
}

static void a_close_survives(struct bench_room *room, const struct zoo_row *row)
{
    struct limits limits = zoo_within(room, patience(row));
    struct err err = ERR_INIT;
    struct bench_box box;
    int rc;

    bench_create(&room->bench, &box);
    zoo_arm(row);
    rc = provider_destroy(room->bench.provider, &box.sandbox, &limits, &err);
    zoo_check(row, rc, &err);
    zoo_disarm(row);
    bench_destroy(&room->bench, &box); /* Tried again, it is gone. */
}

static void closes_survive(void **state)
{
    struct bench_room *room = *state;

    for (size_t i = 0; i < zoo_close_count; i++) {
        a_close_survives(room, &zoo_close[i]);
    }
    zoo_works(room);
}

static void a_session_that_nobody_knows_is_lost(void **state)
{
    const struct zoo_row row = {"session_unknown", "exec", -ESTALE, "who?"};
    struct bench_room *room = *state;
    struct buf out = BUF_INIT(100);
    struct err err = ERR_INIT;
    struct bench_box box;

    zoo_arm(&row);
    zoo_check(&row, run_script(room, ZOO_LONG_MS, "echo", &out, &err), &err);
    buf_done(&out);
    /* Asked again it is there, and the state is what was seen last. */
    assert_int_equal(bench_status(&room->bench, &room->box), PROVIDER_RUNNING);
    zoo_works(room);
    bench_create(&room->bench, &box);
    assert_int_equal(bench_sh(&room->bench, &box, "rm -rf \"$PWD\"", ""), 0);
    assert_int_equal(
        provider_resume(
            room->bench.provider, &box.sandbox,
            &(struct limits){.deadline_ms = clock_deadline(ZOO_LONG_MS),
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
        struct limits limits = zoo_within(room, patience(&rows[i]));
        enum provider_state seen = PROVIDER_LOST;
        struct err err = ERR_INIT;
        int rc;

        zoo_arm(&rows[i]);
        rc = provider_status(room->bench.provider, &room->box.sandbox, &limits,
                             &seen, &err);
        zoo_check(&rows[i], rc, &err);
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
        struct limits limits = zoo_within(room, ZOO_LONG_MS);
        struct err err = ERR_INIT;
        struct bench_box box;
        int rc;

        bench_name(&room->bench, &box);
        box.sandbox.config = rows[i].config;
        rc = provider_create(room->bench.provider, &box.sandbox, &limits, &err);
        zoo_check(&row, rc, &err);
    }
}

/* A line is held once, and no text becomes many times its size. */
static void memory_stays_within_bounds(void **state)
{
    struct rusage usage;

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* What is freed stays. */
#endif
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_in_range(usage.ru_maxrss, 1, 256 * 1024);
}

static void a_shutdown_that_hangs_is_not_waited_for(void **state)
{
    struct bench_room *room = *state;
    int64_t begin;

    zoo_works(room);
    zoo_arm(&(struct zoo_row){.beast = "hangs", .method = "shutdown"});
    begin = clock_ms();
    bench_reopen(&room->bench);
    assert_true(clock_ms() - begin < 2000 + ZOO_SLACK_MS);
    zoo_disarm(NULL);
    zoo_works(room);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_calls_survive),
        cmocka_unit_test(file_calls_survive),
        cmocka_unit_test(a_line_may_have_eleven_megabytes),
        cmocka_unit_test(a_program_that_stops_reading_is_replaced),
        cmocka_unit_test(opens_survive),
        cmocka_unit_test(closes_survive),
        cmocka_unit_test(a_session_that_nobody_knows_is_lost),
        cmocka_unit_test(an_engine_that_is_silent_is_unreachable),
        cmocka_unit_test(a_program_that_cannot_be_started_is_named),
        cmocka_unit_test(memory_stays_within_bounds),
        cmocka_unit_test(a_shutdown_that_hangs_is_not_waited_for),
    };
    int failed;

    if (argc != 2 || !getenv("FAKE_ROOT")) {
        (void)fprintf(stderr, "usage: with_program.sh zoo.py %s\n", argv[0]);
        return 2;
    }
    log_setup(LOG_TO_STDERR, LOG_LEVEL_ERROR);
    bench_use("jsonl");
    bench_configure(argv[1]);
    failed = cmocka_run_group_tests_name("zoo", tests, bench_open_room,
                                         bench_close_room);
    return failed + zoo_commands() ? 1 : 0;
}
