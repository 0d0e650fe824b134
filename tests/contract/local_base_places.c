/* Bases and state directories on other filesystems. */
#include "tests/cmocka.h"
#include "tests/contract/local_base.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs a test in a mount namespace of its own, where `script` has mounted. */
static void run_apart(const char *script, void (*test)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            system(script) != 0) {
            _exit(2);
        }
        test();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A failed assertion would end the wrong process here. */
static void must(bool true_, const char *what)
{
    if (!true_) {
        (void)fprintf(stderr, "not so: %s\n", what);
        _exit(1);
    }
}

static int create(struct bench *bench, struct bench_box *box,
                  const char *config, struct err *err)
{
    bench_name(bench, box);
    box->sandbox.config = config;
    return provider_create(bench->provider, &box->sandbox, bench_limits(bench),
                           err);
}

#define WITH_OVERLAY                                                           \
    "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w /mnt/l && "               \
    "mkdir /mnt/o && mount -t overlay "                                        \
    "-o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w none /mnt/o && "        \
    "mkdir /mnt/o/base && echo f >/mnt/o/base/f"

static void with_state_on_overlay(void)
{
    struct bench bench;
    struct bench_box box;
    struct err err = ERR_INIT;

    must(setenv("TMPDIR", "/mnt/o", 1) == 0, "setenv");
    bench_open(&bench);
    must(create(&bench, &box, "{}", &err) == 0, "a plain one can be made");
    must(strstr(box.instance.metadata, "\"workspace\":\"plain\"") != NULL,
         "it says that it is plain");
    must(strstr(box.instance.metadata, "workspace_why") != NULL, "it says why");
    must(bench_sh(&bench, &box, "echo x >a; cat a", "x\n") == 0, "it works");
    base_changes(&bench, &box, "A a\n");
    bench_destroy(&bench, &box);
    err_clear(&err);
    must(create(&bench, &box, "{\"base\": \"/mnt/l\"}", &err) < 0,
         "no base is taken");
    must(strlen(err.msg) > 20, "and the reason told");
    (void)fprintf(stderr, "refused: %s\n", err.msg);
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

static void state_on_an_overlay_means_plain_directories(void **state)
{
    (void)state;
    run_apart(WITH_OVERLAY, with_state_on_overlay);
}

static void with_base_on_overlay(void)
{
    struct bench bench;
    struct bench_box box;
    struct err err = ERR_INIT;

    bench_open(&bench);
    must(create(&bench, &box, "{\"base\": \"/mnt/o/base\"}", &err) < 0,
         "it is refused");
    (void)fprintf(stderr, "refused: %s\n", err.msg);
    must(strstr(err.msg, "base") != NULL, "with the reason");
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

static void a_base_on_an_overlay_is_refused(void **state)
{
    (void)state;
    run_apart(WITH_OVERLAY, with_base_on_overlay);
}

/* A tmpfs can from Linux 6.3 on. */
static bool can_map_tmpfs(void)
{
    struct utsname name;
    int major = 0;
    int minor = 0;

    return uname(&name) == 0 &&
           sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
           (major > 6 || (major == 6 && minor >= 3));
}

static void use_base(const char *config)
{
    struct bench bench;
    struct bench_box box;
    struct err err = ERR_INIT;

    bench_open(&bench);
    if (create(&bench, &box, config, &err) < 0) {
        must(!can_map_tmpfs() && strstr(err.msg, "cannot show its files"),
             err.msg);
        bench_destroy(&bench, &box);
        bench_close(&bench);
        return;
    }
    must(bench_sh(&bench, &box,
                  "a=$(stat -c %i f) && echo y >>f && [ $a = "
                  "$(stat -c %i f) ] && rm g && cat f",
                  "f\ny\n") == 0,
         "it is there, and its numbers stay");
    base_changes(&bench, &box, "M f\nD g\n");
    bench_destroy(&bench, &box);
    bench_close(&bench);
}

#define WITH_BASE                                                              \
    "mount -t tmpfs none /mnt && mkdir /mnt/base && echo f >/mnt/base/f && "   \
    "echo g >/mnt/base/g"

static void with_base_on_mnt(void)
{
    use_base("{\"base\": \"/mnt/base\"}");
}

static void with_all_on_mnt(void)
{
    must(setenv("TMPDIR", "/mnt", 1) == 0, "setenv");
    with_base_on_mnt();
}

static void a_base_on_tmpfs_works(void **state)
{
    (void)state;
    run_apart(WITH_BASE, with_base_on_mnt);
}

static void a_base_that_is_mounted_read_only_works(void **state)
{
    (void)state;
    run_apart(WITH_BASE " && mount -o remount,ro /mnt", with_base_on_mnt);
}

static void state_on_tmpfs_works_too(void **state)
{
    (void)state;
    run_apart(WITH_BASE, with_all_on_mnt);
}

int suite_base_places(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_on_an_overlay_means_plain_directories),
        cmocka_unit_test(a_base_on_an_overlay_is_refused),
        cmocka_unit_test(a_base_on_tmpfs_works),
        cmocka_unit_test(a_base_that_is_mounted_read_only_works),
        cmocka_unit_test(state_on_tmpfs_works_too),
    };

    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
