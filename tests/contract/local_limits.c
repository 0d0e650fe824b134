/* The limits of `local`: real hogs, each ended or held alone. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/json.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1024 * 1024)

enum {
    IN_TIME_MS = 6000, /* Three times what it may take. */
    SETTLE_MS = 10000,
    BIRTHS = 10,
    WORDS = 10,
    WORD_SIZE = 120000,
};

/* What the sandboxes of these tests may use. */
#define CONFIG                                                                 \
    "{\"memory_bytes\": 67108864, \"pids\": 40, \"cpu_percent\": 50, "         \
    "\"file_size_bytes\": 4194304, \"disk_bytes\": 25165824, "                 \
    "\"open_files\": 64, \"tmp_bytes\": 8388608}"

/* A provider with the sandbox that is to hold, and another one. */
struct room {
    struct bench bench;
    struct bench_box hog;
    struct bench_box other;
};

static void create(struct bench *bench, struct bench_box *box,
                   const char *config)
{
    struct limits limits = {.deadline_ms = clock_deadline(SETTLE_MS),
                            .cancel = &bench->never};
    struct err err = ERR_INIT;

    bench_name(bench, box);
    box->sandbox.config = config;
    assert_int_equal(
        provider_create(bench->provider, &box->sandbox, &limits, &err), 0);
}

static int open_room(void **state)
{
    struct room *room = calloc(1, sizeof(*room));

    assert_non_null(room);
    bench_open(&room->bench);
    create(&room->bench, &room->hog, CONFIG);
    create(&room->bench, &room->other, "{}");
    *state = room;
    return 0;
}

static int close_room(void **state)
{
    struct room *room = *state;

    bench_destroy(&room->bench, &room->hog);
    bench_destroy(&room->bench, &room->other);
    bench_close(&room->bench);
    free(room);
    return 0;
}

/* How the hog's sandbox is limited, as the provider tells it. */
static bool is_enforced(struct room *room, const char *key)
{
    struct buf text = BUF_INIT(65536);
    struct err err = ERR_INIT;
    struct js *all = NULL;
    struct js *one;
    bool enforced;

    assert_int_equal(
        provider_limits(room->bench.provider, &room->hog.sandbox, &text, &err),
        0);
    assert_int_equal(js_parse(buf_str(&text), text.size, &all, &err), 0);
    one = js_get(all, key);
    assert_non_null(one);
    enforced = js_text(one, "by") != NULL;
    assert_true(enforced != (js_text(one, "why") != NULL));
    js_free(one);
    js_free(all);
    buf_done(&text);
    return enforced;
}

static void must_be_enforced(struct room *room, const char *key)
{
    if (!is_enforced(room, key)) {
        skip();
    }
}

static int room_of(struct room *room, const struct bench_box *box)
{
    struct err err = ERR_INIT;

    return provider_room(room->bench.provider, box->sandbox.number, &err);
}

static void all_limits_are_told(void **state)
{
    static const char *const keys[] = {
        "memory_bytes", "pids",       "cpu_percent", "file_size_bytes",
        "disk_bytes",   "open_files", "tmp_bytes",
    };

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        (void)is_enforced(*state, keys[i]);
    }
}

static void a_limit_out_of_its_range_makes_no_sandbox(void **state)
{
    static const char *const configs[] = {
        "{\"pids\": 0}",
        "{\"memory_bytes\": -1}",
        "{\"disk_bytes\": \"1\"}",
    };
    struct room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
        struct bench_box box;
        struct limits limits = {.deadline_ms = clock_deadline(SETTLE_MS),
                                .cancel = &room->bench.never};
        struct err err = ERR_INIT;

        bench_name(&room->bench, &box);
        box.sandbox.config = configs[i];
        assert_int_equal(
            provider_create(room->bench.provider, &box.sandbox, &limits, &err),
            -EINVAL);
        bench_destroy(&room->bench, &box);
    }
}

/* Each says what it has got; none of them can have more. */
static void each_process_and_each_directory_is_held(void **state)
{
    static const struct {
        const char *script;
        const char *says;
        int code;
    } hogs[] = {
        {"head -c 5M /dev/zero >big; stat -c %s big", "4194304\n", 0},
        {"exec head -c 5M /dev/zero >big", "", 128 + 25},
        {"rm -f big; truncate -s 5M big 2>/dev/null; echo $?", "153\n", 0},
        {"perl -e 'while (open($f[@f], q(/dev/null))) {} print $#f + 3'", "64",
         0},
        {"head -c 9M /dev/zero 2>/dev/null >/tmp/x; stat -c %s /tmp/x; "
         "rm /tmp/x",
         "4194304\n", 0},
        {"for i in 1 2 3; do head -c 4M /dev/zero >/tmp/$i; done 2>/dev/null; "
         "du -m /tmp | cut -f1; rm /tmp/?",
         "8\n", 0},
        {"for i in 1 2 3; do head -c 4M /dev/zero >/var/tmp/$i; done "
         "2>/dev/null; du -m /var/tmp | cut -f1; rm /var/tmp/?",
         "8\n", 0},
        {"for i in 1 2 3; do head -c 4M /dev/zero >/dev/shm/$i; done "
         "2>/dev/null; du -m /dev/shm | cut -f1; rm /dev/shm/?",
         "8\n", 0},
    };
    struct room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(hogs); i++) {
        assert_int_equal(
            bench_sh(&room->bench, &room->hog, hogs[i].script, hogs[i].says),
            hogs[i].code);
    }
}

static void who_writes_too_long_a_file_is_told(void **state)
{
    static const char *const scripts[] = {
        "exec head -c 5M /dev/zero >long",
        "head -c 5M /dev/zero >long",
    };
    struct room *room = *state;

    for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
        struct command_result result;
        struct bench_run run;

        (void)bench_script(&room->bench, &room->hog, scripts[i], &run);
        result = bench_exited(&run);
        bench_closed(&run);
        bench_run_done(&run);
        assert_int_equal(result.why.code, EDQUOT);
        assert_non_null(strstr(result.why.msg, "file_size_bytes: "));
    }
    assert_int_equal(bench_sh(&room->bench, &room->hog, "rm long", ""), 0);
}

/* It was killed in time, and the words name the key. */
static void is_stopped(struct bench_run *run, int64_t begin, int code,
                       const char *key)
{
    struct command_result result = bench_exited(run);
    int64_t took = run->exited_ms - begin;

    bench_closed(run);
    bench_run_done(run);
    assert_int_equal(result.why.code, code);
    assert_non_null(strstr(result.why.msg, key));
    assert_int_equal(result.end, COMMAND_KILLED);
    assert_int_equal(result.signal, 9);
    assert_in_range(took, 0, IN_TIME_MS);
}

/* Beyond its limit within a second, and on. */
#define FILL                                                                   \
    "i=0; while :; do head -c 4M /dev/zero >f$i; i=$((i+1)); sleep .05; done"

static void await_room(struct room *room, const struct bench_box *box, int rc)
{
    int64_t deadline = clock_deadline(SETTLE_MS);

    while (room_of(room, box) != rc && clock_ms() < deadline) {
        (void)usleep(10000);
    }
    assert_int_equal(room_of(room, box), rc);
}

static void who_fills_the_disk_is_ended_and_can_clear_it(void **state)
{
    struct room *room = *state;
    int64_t begin = clock_ms();
    struct bench_run run;

    (void)bench_script(&room->bench, &room->hog, FILL, &run);
    is_stopped(&run, begin, EDQUOT, "disk_bytes");
    assert_int_equal(room_of(room, &room->hog), -EDQUOT);
    assert_int_equal(room_of(room, &room->other), 0);
    assert_int_equal(bench_sh(&room->bench, &room->other, "echo ok", "ok\n"),
                     0);
    assert_int_equal(bench_sh(&room->bench, &room->hog, "rm f*", ""), 0);
    await_room(room, &room->hog, 0);
}

/* Output is kept outside, but on the same disk. */
static void output_counts_too(void **state)
{
    struct room *room = *state;
    int64_t begin = clock_ms();
    struct bench_run run;
    size_t bytes;

    (void)bench_script(&room->bench, &room->hog, "yes | head -c 2G", &run);
    (void)bench_exited(&run);
    mutex_lock(&run.lock);
    bytes = run.bytes[COMMAND_STDOUT];
    mutex_unlock(&run.lock);
    assert_in_range(bytes, 25165824, 26 << 20);
    is_stopped(&run, begin, EDQUOT, "disk_bytes");
    assert_int_equal(bench_sh(&room->bench, &room->hog,
                              "yes | head -c 24M | wc -c", "25165824\n"),
                     0);
}

static void who_fills_it_from_the_background_is_ended_too(void **state)
{
    struct room *room = *state;
    int64_t deadline = clock_deadline(SETTLE_MS);

    assert_int_equal(
        bench_sh(&room->bench, &room->hog, "(" FILL ") >/dev/null 2>&1 &", ""),
        0);
    await_room(room, &room->hog, -EDQUOT);
    /* While it lives it has a command, or makes files anew. */
    while (bench_sh(&room->bench, &room->hog,
                    "rm -f f*; sleep 0.2; [ -z \"$(ls)\" ] && "
                    "! pgrep 'head|sleep' >/dev/null",
                    "") != 0) {
        assert_true(clock_ms() < deadline);
    }
}

static void who_takes_too_much_memory_is_ended_and_told(void **state)
{
    struct room *room = *state;
    int64_t begin = clock_ms();
    struct bench_run run;

    must_be_enforced(room, "memory_bytes");
    (void)bench_script(&room->bench, &room->hog,
                       "exec perl -e '$x = q(x) x (200 << 20); sleep 9'", &run);
    is_stopped(&run, begin, EDQUOT, "memory_bytes");
    /* What lies in /tmp counts, and the first process outlives it all. */
    for (int i = 0; i < 3; i++) {
        (void)bench_sh(&room->bench, &room->hog,
                       "perl -e '$x = q(x) x (200 << 20)'", "");
    }
    assert_int_equal(bench_sh(&room->bench, &room->hog, "echo ok", "ok\n"), 0);
}

static void what_one_has_met_is_not_told_of_the_next(void **state)
{
    struct room *room = *state;
    struct bench_run run;

    must_be_enforced(room, "memory_bytes");
    assert_int_equal(bench_sh(&room->bench, &room->hog,
                              "perl -e '$x = q(x) x (200 << 20)' || echo $?",
                              "137\n"),
                     0);
    (void)bench_script(&room->bench, &room->hog, "exit 3", &run);
    assert_int_equal(bench_exited(&run).code, 3);
    bench_closed(&run);
    assert_int_equal(run.result.why.code, 0);
    bench_run_done(&run);
}

static void where_memory_ends_the_first_process_is_the_last(void **state)
{
    struct room *room = *state;

    assert_int_equal(
        bench_sh(&room->bench, &room->hog,
                 "test $(cat /proc/1/oom_score_adj) -lt 1000 && "
                 "cat /proc/self/oom_score_adj; "
                 "(echo 0 >/proc/self/oom_score_adj) 2>/dev/null || echo no",
                 "1000\nno\n"),
        0);
}

/* One that cannot be started has not exited. */
static enum command_end try_run(struct room *room, struct bench_box *box,
                                const char *script, const char *const *argv)
{
    const struct command command = {.n = bench_next(),
                                    .shell = script,
                                    .shell_size = script ? strlen(script) : 0,
                                    .argv = argv};
    enum command_end end = COMMAND_KILLED;
    struct bench_run run;
    struct limits limits = {.deadline_ms = clock_deadline(SETTLE_MS),
                            .cancel = &run.cancel};
    struct err err = ERR_INIT;

    bench_run_init(&run);
    if (provider_exec(room->bench.provider, &box->sandbox, &command, &limits,
                      &bench_sink, &run, &err) == 0) {
        struct command_result result = bench_exited(&run);

        end = result.end == COMMAND_EXITED && result.code != 0 ? COMMAND_KILLED
                                                               : result.end;
        bench_closed(&run);
    }
    bench_run_done(&run);
    return end;
}

/* Whether one outlives commands that begin where files hold all memory. */
static bool outlives(struct room *room, const char *const *argv)
{
    struct bench_box box;
    bool runs;

    create(&room->bench, &box,
           "{\"memory_bytes\": 33554432, \"tmp_bytes\": 134217728}");
    while (try_run(room, &box, "head -c 256K /dev/zero >>/tmp/x", NULL) ==
           COMMAND_EXITED) {
    }
    for (int i = 0; i < BIRTHS; i++) {
        (void)try_run(room, &box, NULL, argv);
    }
    runs = bench_status(&room->bench, &box) == PROVIDER_RUNNING;
    bench_destroy(&room->bench, &box);
    return runs;
}

/* A command that begins needs memory before it is its own: what is in no
 * process leaves but process 1 to take it from. That one ends now and then. */
static void where_files_take_all_memory_a_command_that_begins_ends(void **state)
{
    static char word[WORD_SIZE];
    const char *argv[WORDS + 2] = {"/bin/true"};
    struct room *room = *state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* Its shadow makes a fork dearer than the room that is left. */
#endif
    must_be_enforced(room, "memory_bytes");
    memset(word, 'x', sizeof(word) - 1);
    for (size_t i = 1; i <= WORDS; i++) {
        argv[i] = word;
    }
    assert_true(outlives(room, argv) || outlives(room, argv));
}

/* It may hold up the other, which is its like, but not process 1. */
static void who_stops_all_others_does_not_stop_the_sandbox(void **state)
{
    struct room *room = *state;
    const struct command other = {.n = bench_next(),
                                  .shell = "echo ok",
                                  .shell_size = 7,
                                  .timeout_ms = 500};
    const char *loop = "perl -e 'print qq(ready\n); 1 while kill STOP => -1'";
    struct command hog = {.n = bench_next(),
                          .shell = loop,
                          .shell_size = strlen(loop),
                          .timeout_ms = 1500};
    struct bench_run runs[2];

    bench_run_init(&runs[0]);
    bench_run_init(&runs[1]);
    bench_start(&room->bench, &room->hog, &hog, &runs[0]);
    bench_start(&room->bench, &room->hog, &other, &runs[1]);
    (void)bench_exited(&runs[1]);
    assert_int_equal(bench_exited(&runs[0]).end, COMMAND_TIMEOUT);
    for (int i = 0; i < 2; i++) {
        bench_closed(&runs[i]);
        bench_run_done(&runs[i]);
    }
    assert_int_equal(bench_sh(&room->bench, &room->hog, "echo ok", "ok\n"), 0);
}

static void who_forks_too_much_is_held(void **state)
{
    struct room *room = *state;
    struct command_result result;
    struct bench_run run;

    must_be_enforced(room, "pids");
    (void)bench_script(
        &room->bench, &room->hog,
        "perl -e '$| = 1; while (defined($p = fork)) { if (!$p) { "
        "sleep 9; exit } $n++ } print $n + 2; kill 9, -getpgrp'",
        &run);
    result = bench_exited(&run);
    bench_closed(&run);
    assert_in_range(atoi(bench_text(&run, COMMAND_STDOUT)), 30, 41);
    if (result.why.code) {
        assert_non_null(strstr(result.why.msg, "pids"));
    }
    bench_run_done(&run);
    assert_int_equal(bench_sh(&room->bench, &room->hog, "echo ok", "ok\n"), 0);
}

static void who_forks_on_and_on_is_ended_and_told(void **state)
{
    static const char *const bombs[] = {
        "perl -e 'fork while 1'",
        "perl -e '$SIG{TERM} = q(IGNORE); while (1) { fork; setpgrp }'",
        "perl -e 'fork while 1' >/dev/null 2>&1 & sleep 9",
    };
    struct room *room = *state;

    must_be_enforced(room, "memory_bytes");
    for (size_t i = 0; i < ARRAY_SIZE(bombs); i++) {
        int64_t begin = clock_ms();
        struct bench_run run;

        (void)bench_script(&room->bench, &room->hog, bombs[i], &run);
        is_stopped(&run, begin, EDQUOT, "pids");
        assert_int_equal(
            bench_sh(&room->bench, &room->other, "echo ok", "ok\n"), 0);
        assert_int_equal(bench_sh(&room->bench, &room->hog, "echo ok", "ok\n"),
                         0);
    }
}

/* The best of some, in microseconds: what the sandbox can do, not the load. */
static int64_t best_exec_us(struct room *room)
{
    int64_t best = INT64_MAX;

    for (int i = 0; i < 15; i++) {
        int64_t begin = clock_wall_us();

        assert_int_equal(
            bench_sh(&room->bench, &room->other, "echo ok", "ok\n"), 0);
        best = clock_wall_us() - begin < best ? clock_wall_us() - begin : best;
    }
    return best;
}

static int64_t best_beside(struct room *room, const char *hog)
{
    const struct command command = {.n = bench_next(),
                                    .shell = hog,
                                    .shell_size = strlen(hog),
                                    .timeout_ms = 400};
    struct bench_run run;
    int64_t best;

    bench_run_init(&run);
    bench_start(&room->bench, &room->hog, &command, &run);
    (void)usleep(100000);
    best = best_exec_us(room);
    bench_closed(&run);
    bench_run_done(&run);
    return best;
}

/* Held against what it is before and after that. Another program may have been
 * in the way: some tries. */
static void answers_beside(struct room *room, const char *hog)
{
    int64_t beside = INT64_MAX;
    int64_t alone = 0;

    for (int i = 0; i < 5 && beside > 3 * alone + 2000; i++) {
        int64_t after;

        alone = best_exec_us(room);
        beside = best_beside(room, hog);
        after = best_exec_us(room);
        alone = after > alone ? after : alone;
    }
    assert_in_range(beside, 0, 3 * alone + 2000);
}

static void the_others_answer_beside_each_hog(void **state)
{
    static const char *const hogs[] = {
        "perl -e 'fork for 1 .. 4; 1 while 1'",
        "while :; do perl -e '$x = q(x) x (200 << 20)'; done",
        FILL,
        "perl -e '$SIG{TERM} = q(IGNORE); fork while 1'",
        "exec yes",
    };

    for (size_t i = 0; i < ARRAY_SIZE(hogs); i++) {
        answers_beside(*state, hogs[i]);
    }
}

static void who_computes_has_its_share(void **state)
{
    struct room *room = *state;
    struct bench_run run;

    must_be_enforced(room, "cpu_percent");
    (void)bench_script(&room->bench, &room->hog,
                       "perl -e 'for (1, 2) { if (!fork) { alarm 1; 1 while 1 "
                       "} } 1 while wait > 0; @t = times; "
                       "printf qq(%d), 100 * ($t[2] + $t[3])'",
                       &run);
    bench_closed(&run);
    assert_in_range(atoi(bench_text(&run, COMMAND_STDOUT)), 10, 100);
    bench_run_done(&run);
}

static void who_is_paused_computes_nothing(void **state)
{
    struct room *room = *state;
    struct limits limits = {.deadline_ms = clock_deadline(SETTLE_MS),
                            .cancel = &room->bench.never};
    struct err err = ERR_INIT;

    bench_compute(&room->bench, &room->hog);
    bench_computes();
    assert_int_equal(
        provider_pause(room->bench.provider, &room->hog.sandbox, &limits, &err),
        0);
    assert_true(bench_is_idle());
    assert_int_equal(provider_resume(room->bench.provider, &room->hog.sandbox,
                                     &limits, &err),
                     0);
    bench_computes();
}

#define IN_ROOM(test)                                                          \
    cmocka_unit_test_setup_teardown(test, open_room, close_room)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOM(all_limits_are_told),
        IN_ROOM(a_limit_out_of_its_range_makes_no_sandbox),
        IN_ROOM(each_process_and_each_directory_is_held),
        IN_ROOM(who_writes_too_long_a_file_is_told),
        IN_ROOM(who_fills_the_disk_is_ended_and_can_clear_it),
        IN_ROOM(output_counts_too),
        IN_ROOM(who_fills_it_from_the_background_is_ended_too),
        IN_ROOM(who_takes_too_much_memory_is_ended_and_told),
        IN_ROOM(what_one_has_met_is_not_told_of_the_next),
        IN_ROOM(where_files_take_all_memory_a_command_that_begins_ends),
        IN_ROOM(where_memory_ends_the_first_process_is_the_last),
        IN_ROOM(who_stops_all_others_does_not_stop_the_sandbox),
        IN_ROOM(who_forks_too_much_is_held),
        IN_ROOM(who_forks_on_and_on_is_ended_and_told),
        IN_ROOM(the_others_answer_beside_each_hog),
        IN_ROOM(who_computes_has_its_share),
        IN_ROOM(who_is_paused_computes_nothing),
    };

    (void)umask(077);
    bench_use("local");
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
