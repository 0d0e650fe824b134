/* Sandboxes with the system directories of another root directory. */
#include "tests/cmocka.h"
#include "tests/contract/local_base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The least that /bin/sh needs, as the machine has it. */
static const char small_root[] =
    "mkdir -p usr/bin etc opt root proc/bad && ln -s usr/bin bin && "
    "for d in lib lib64; do [ ! -e /$d ] || { mkdir -p usr/$d && "
    "ln -s usr/$d $d; }; done && cp /bin/sh /bin/cat /bin/ls usr/bin/ && "
    "for l in $(ldd /bin/sh /bin/cat /bin/ls | grep -o '/lib[^ ]*' | sort -u); "
    "do mkdir -p \"./$(dirname \"$l\")\" && cp -L \"$l\" \"./$l\"; done && "
    "echo mine >etc/mine && echo bad >etc/passwd && echo bad >etc/hosts && "
    "echo tool >opt/tool && echo secret >root/secret && "
    "ln -s mine etc/link && mkdir etc/ssl && echo k >etc/ssl/k";

static void make_root(struct bench *bench, struct base *base,
                      const char *script)
{
    base_make(bench, base, script);
    (void)snprintf(base->config, sizeof(base->config), "{\"rootfs\": \"%s\"}",
                   base->dir);
}

static void its_system_directories_are_the_sandboxs(void **state)
{
    struct bench *bench = *state;
    struct base root;
    struct bench_box box;

    make_root(bench, &root, small_root);
    base_create(bench, &box, &root);
    assert_int_equal(bench_sh(bench, &box,
                              "cat /etc/mine /etc/link /opt/tool /etc/ssl/k; "
                              "ls /usr/bin; cat /etc/hostname; echo x >f; "
                              "cat f; cat /etc/passwd | { read a; echo $a; }",
                              "mine\nmine\ntool\nk\ncat\nls\nsh\nsandbox\n"
                              "x\nroot:x:0:0:root:/root:/usr/sbin/nologin\n"),
                     0);
    /* Nothing of this machine's, and nothing can be written. */
    assert_int_not_equal(
        bench_sh(bench, &box,
                 "[ -e /usr/share ] || [ -e /usr/bin/env ] || "
                 "[ -e /root/secret ] || [ -e /etc/os-release ]",
                 ""),
        0);
    assert_int_not_equal(
        bench_sh(bench, &box, "(echo x >/etc/mine) 2>/dev/null", NULL), 0);
    assert_int_not_equal(
        bench_sh(bench, &box, "(echo x >/usr/bin/x) 2>/dev/null", NULL), 0);
    bench_destroy(bench, &box);
    base_remove(&root);
}

static void one_without_a_shell_is_refused(void **state)
{
    struct bench *bench = *state;
    struct base root;
    struct bench_box box;
    struct err err = ERR_INIT;

    make_root(bench, &root, "mkdir -p usr/bin etc && ln -s /usr/bin bin");
    bench_name(bench, &box);
    box.sandbox.config = root.config;
    assert_int_equal(provider_create(bench->provider, &box.sandbox,
                                     bench_limits(bench), &err),
                     -ENOENT);
    assert_non_null(strstr(err.msg, "rootfs"));
    bench_destroy(bench, &box);
    base_remove(&root);
}

static void one_that_is_not_there_is_refused(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    struct err err = ERR_INIT;

    bench_name(bench, &box);
    box.sandbox.config = "{\"rootfs\": \"/nowhere\"}";
    assert_int_equal(provider_create(bench->provider, &box.sandbox,
                                     bench_limits(bench), &err),
                     -ENOENT);
    assert_non_null(strstr(err.msg, "rootfs '/nowhere'"));
    bench_destroy(bench, &box);
}

int suite_base_rootfs(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_system_directories_are_the_sandboxs),
        cmocka_unit_test(one_without_a_shell_is_refused),
        cmocka_unit_test(one_that_is_not_there_is_refused),
    };

    return cmocka_run_group_tests_name("rootfs", tests, bench_group_setup,
                                       bench_group_teardown);
}
