/*
 * What `local` does for a user who is not root, and only then. Most machines
 * give such a user no control group either.
 */
#include "core/clock.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SKIPPED = 77,
    BIRTHS = 20,
    OTHERS = 3,
    SOON_MS = 10000,
};

static int sh(void **state, const char *script, const char *expect)
{
    struct bench_room *room = *state;

    return bench_sh(&room->bench, &room->box, script, expect);
}

/* ---- Ids ---- */

static void a_sandbox_has_one_id(void **state)
{
    static const char *const refused[] = {
        "chown 0 f",
        "chgrp 5 f",
        "chown 1001 f",
        "setpriv --reuid 0 true",
    };

    assert_int_equal(sh(state, "id -u; id -g", "1000\n1000\n"), 0);
    assert_int_equal(sh(state, "touch f; chown 1000:1000 f", ""), 0);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        assert_int_not_equal(sh(state, refused[i], ""), 0);
    }
    assert_int_equal(sh(state, "cat /proc/self/setgroups", "deny\n"), 0);
}

static void its_files_are_ours(void **state)
{
    struct bench_room *room = *state;
    struct provider_root root;
    struct err err = ERR_INIT;
    struct stat st;

    assert_int_equal(sh(state, "echo x >ours", ""), 0);
    assert_int_equal(
        provider_root(room->bench.provider, &room->box.sandbox, &root, &err),
        0);
    assert_int_equal(root.count, 1);
    assert_int_equal(fstatat(root.fd, "ours", &st, 0), 0);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(st.st_gid, getegid());
    (void)close(root.fd);
}

/* Process 1 has the id of the commands. */
static void process_1_is_out_of_reach(void **state)
{
    static const char *const tries[] = {
        "cat /proc/1/environ",
        "ls /proc/1/fd/",
        "ls /proc/1/root/",
        "head -c 1 /proc/1/mem",
        "echo 0 >/proc/1/oom_score_adj",
        "prlimit --pid 1 --nofile=3",
        "echo >/run/exec/x",
        "mount -o remount,rw /run/exec",
        "touch /x",
        "touch /etc/x",
        "echo >>/etc/passwd",
        "touch /dev/x",
    };

    for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
        if (sh(state, tries[i], "") == 0) {
            print_error("it can: %s\n", tries[i]);
            fail();
        }
    }
    assert_int_equal(sh(state, "kill -9 1; kill -STOP 1; echo still", NULL), 0);
}

/* A script is the mount's to guard, as its owner is everybody. */
static void no_command_changes_the_script_of_another(void **state)
{
    struct bench_room *room = *state;
    struct bench_run run;

    (void)bench_script(&room->bench, &room->box,
                       "echo ready; until [ -e go ]; do sleep 0.05; done; "
                       "echo end",
                       &run);
    bench_says(&run, "ready\n");
    assert_int_equal(sh(state,
                        "for s in /run/exec/*; do chmod 777 $s; "
                        "echo 'echo changed' >$s; rm $s; done; ls /run/exec | "
                        "wc -l; touch go",
                        "2\n"),
                     0);
    bench_closed(&run);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), "ready\nend\n");
    bench_run_done(&run);
}

/* ---- Reapers ---- */

static void no_sleeper_is_left(void **state)
{
    int64_t deadline = clock_deadline(SOON_MS);
    int rc = 0;

    while (rc == 0 && clock_ms() < deadline) {
        rc = sh(state, "grep -lz '^432[0-9]$' /proc/[0-9]*/cmdline", NULL);
    }
    assert_int_not_equal(rc, 0);
}

static void who_kills_its_reaper_dies_with_it(void **state)
{
    struct bench_room *room = *state;
    struct bench_run other;
    struct bench_run run;

    (void)bench_script(&room->bench, &room->box,
                       "echo ready; sleep 2; echo whole", &other);
    bench_says(&other, "ready\n");
    (void)bench_script(&room->bench, &room->box,
                       "setsid sleep 4321 & (setsid sleep 4322 &) ; "
                       "kill -9 $PPID; sleep 4323",
                       &run);
    assert_int_equal(bench_exited(&run).end, COMMAND_KILLED);
    bench_closed(&run);
    bench_run_done(&run);
    no_sleeper_is_left(state);
    bench_closed(&other);
    assert_string_equal(bench_text(&other, COMMAND_STDOUT), "ready\nwhole\n");
    bench_run_done(&other);
}

static void a_stopped_reaper_ends_with_its_command(void **state)
{
    struct bench_room *room = *state;
    static const char script[] = "kill -STOP $PPID; sleep 4321 & sleep 4322";
    struct command command = {.n = bench_next(),
                              .shell = script,
                              .shell_size = strlen(script),
                              .timeout_ms = 200};
    struct bench_run run;
    int64_t begin = clock_ms();

    bench_run_init(&run);
    bench_start(&room->bench, &room->box, &command, &run);
    assert_int_equal(bench_exited(&run).end, COMMAND_TIMEOUT);
    assert_in_range(run.exited_ms - begin, 180, 3 * 2200);
    bench_closed(&run);
    bench_run_done(&run);
    no_sleeper_is_left(state);
}

/* ---- The keeper ---- */

/* A child of ours by its name; 0: there is none. */
static pid_t find_keeper(void)
{
    DIR *dir = opendir("/proc");
    const struct dirent *entry;
    pid_t found = 0;

    assert_non_null(dir);
    for (entry = readdir(dir); entry && !found; entry = readdir(dir)) {
        char path[300];
        char text[256] = "";
        int parent = 0;
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%s/stat", entry->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 &&
            strstr(text, "(sessionfs-keep") &&
            sscanf(strrchr(text, ')'), ") %*c %d", &parent) == 1 &&
            parent == getpid()) {
            found = (pid_t)strtol(text, NULL, 10);
        }
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    (void)closedir(dir);
    return found;
}

/* What is common to all is of the one id, which may ask for leases of it. */
static void nobody_holds_up_whoever_opens_what_is_common(void **state)
{
    static const char hold[] =
        "perl -e '$SIG{IO} = q(IGNORE); open(F, q(</etc/passwd)); "
        "$| = 1; fcntl(F, 1024, 1); print qq(up\n); "
        "sleep 99'";
    struct bench_room *room = *state;
    struct bench_box boxes[OTHERS];
    struct bench_run holder;

    for (size_t i = 0; i < OTHERS; i++) {
        bench_create(&room->bench, &boxes[i]);
    }
    (void)bench_script(&room->bench, &boxes[0], hold, &holder);
    bench_says(&holder, "up\n");
    for (size_t i = 0; i < OTHERS; i++) {
        int64_t begin = clock_ms();

        assert_int_equal(
            bench_sh(&room->bench, &boxes[i], "cat /etc/passwd >/dev/null", ""),
            0);
        assert_true(clock_ms() - begin < SOON_MS);
    }
    cancel_fire(&holder.cancel);
    bench_closed(&holder);
    bench_run_done(&holder);
    for (size_t i = 0; i < OTHERS; i++) {
        bench_destroy(&room->bench, &boxes[i]);
    }
}

/* Whether the command was begun; one may lose to who stops it without end. */
static bool is_let_go_on(struct bench_room *room, struct bench_run *run)
{
    static const char *const argv[] = {"/bin/true", NULL};
    const struct command command = {.n = bench_next(), .argv = argv};
    const struct limits limits = {.deadline_ms = clock_deadline(SOON_MS),
                                  .cancel = &run->cancel};
    struct err err = ERR_INIT;
    int rc;

    bench_run_init(run);
    rc = provider_exec(room->bench.provider, &room->box.sandbox, &command,
                       &limits, &bench_sink, run, &err);
    if (rc == -EAGAIN) {
        bench_run_done(run);
        return false;
    }
    assert_int_equal(rc, 0);
    return true;
}

/* Process 1 waits for each: one that stays stopped would be the last. */
static void a_command_that_is_stopped_at_its_birth_is_let_go_on(void **state)
{
    struct bench_room *room = *state;
    struct bench_run stopper;
    struct bench_run runs[BIRTHS];
    size_t begun = 0;

    (void)bench_script(&room->bench, &room->box,
                       "echo up; exec perl -e 'kill STOP => -1 while 1'",
                       &stopper);
    bench_says(&stopper, "up\n");
    while (begun < BIRTHS && is_let_go_on(room, &runs[begun])) {
        begun++;
    }
    cancel_fire(&stopper.cancel);
    bench_closed(&stopper);
    bench_run_done(&stopper);
    for (size_t i = 0; i < begun; i++) {
        cancel_fire(&runs[i].cancel);
        bench_closed(&runs[i]);
        bench_run_done(&runs[i]);
    }
    assert_int_equal(bench_sh(&room->bench, &room->box, "echo on", "on\n"), 0);
}

static void a_killed_keeper_is_replaced_and_files_stay(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    struct err err = ERR_INIT;
    int64_t deadline = clock_deadline(SOON_MS);
    pid_t keeper;

    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box, "echo kept >file", ""), 0);
    keeper = find_keeper();
    assert_true(keeper > 0);
    assert_int_equal(kill(keeper, SIGKILL), 0);
    while (bench_status(bench, &box) == PROVIDER_RUNNING) {
        assert_true(clock_ms() < deadline);
        (void)poll(NULL, 0, 10);
    }
    if (provider_resume(bench->provider, &box.sandbox, bench_limits(bench),
                        &err) < 0) {
        print_error("%s\n", err.msg);
        fail();
    }
    assert_int_equal(
        bench_sh(bench, &box, "cat file; echo more >>file", "kept\n"), 0);
    assert_int_not_equal(find_keeper(), keeper);
    bench_destroy(bench, &box);
}

/* An argument chooses among the tests, as cmocka has it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_has_one_id),
        cmocka_unit_test(its_files_are_ours),
        cmocka_unit_test(process_1_is_out_of_reach),
        cmocka_unit_test(no_command_changes_the_script_of_another),
        cmocka_unit_test(who_kills_its_reaper_dies_with_it),
        cmocka_unit_test(a_stopped_reaper_ends_with_its_command),
        cmocka_unit_test(nobody_holds_up_whoever_opens_what_is_common),
        cmocka_unit_test(a_command_that_is_stopped_at_its_birth_is_let_go_on),
    };
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(a_killed_keeper_is_replaced_and_files_stay),
    };
    int failed;

    if (geteuid() == 0) {
        (void)fprintf(stderr, "root is not meant\n");
        return SKIPPED;
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    (void)umask(077);
    bench_use("local");
    failed = cmocka_run_group_tests_name("user", tests, bench_open_room,
                                         bench_close_room);
    failed += cmocka_run_group_tests_name("keeper", alone, bench_group_setup,
                                          bench_group_teardown);
    return failed ? 1 : 0;
}
