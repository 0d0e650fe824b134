/* What a program in a sandbox of `local` cannot reach. */
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_setuid_program_gives_nothing(void **state)
{
    struct bench *bench = *state;
    struct provider_root root;
    struct bench_box box;
    struct err err = ERR_INIT;

    bench_create(bench, &box);
    assert_int_equal(
        bench_sh(bench, &box, "cp /usr/bin/id id; ./id -u", "1000\n"), 0);
    assert_int_equal(provider_root(bench->provider, &box.sandbox, &root, &err),
                     0);
    assert_int_equal(fchownat(root.fd, "id", root.base, root.base, 0), 0);
    assert_int_equal(fchmodat(root.fd, "id", 06755, 0), 0);
    (void)close(root.fd);
    assert_int_equal(bench_sh(bench, &box, "./id -u; ./id -g", "1000\n1000\n"),
                     0);
    bench_destroy(bench, &box);
}

static void limits_hold(void **state)
{
    static const struct {
        const char *script;
        const char *out;
    } cases[] = {
        {"ulimit -c", "0\n"},
        {"ulimit -n", "1024\n"},
        {"ulimit -Hn | awk '$1 <= 16384'  | wc -l", "1\n"},
        {"grep -c '^CapBnd:.0*$' /proc/self/status", "1\n"},
        {"grep -c '^CapEff:.0*$' /proc/self/status", "1\n"},
        {"grep -c '^NoNewPrivs:.1$' /proc/self/status", "1\n"},
        {"cat /proc/self/oom_score_adj", "1000\n"},
        {"ls /proc/self/fd | wc -l", "4\n"},
        {"hostname", "sandbox\n"},
        {"id -un", "user\n"},
        {"stat -c '%U %a' /workspace", "user 755\n"},
        {"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n"},
        {"cut -d: -f3 /proc/self/cgroup | grep -c sessionfs", "0\n"},
        {"ls -d /proc/[0-9]* | wc -l | awk '$1 < 8' | wc -l", "1\n"},
        /* Below it is the machine's. */
        {"{ command -v umount; command -v unshare; } | wc -l; umount /proc "
         "2>&- || "
         "umount -l /proc 2>&- || unshare -Urm umount -l /proc 2>&- || echo no",
         "2\nno\n"},
    };
    struct bench_box box;

    bench_create(*state, &box);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)bench_sh(*state, &box, cases[i].script, cases[i].out);
    }
    bench_destroy(*state, &box);
}

static void what_programs_need_works(void **state)
{
    static const struct {
        const char *script;
        const char *out;
    } cases[] = {
        {"echo 'int main(void){return 3;}' >a.c && gcc a.c && ./a.out; echo $?",
         "3\n"},
        {"printf 'a: b\\n\\tcp b a\\n' >Makefile && echo x >b && make -s && "
         "cat a",
         "x\n"},
        {"git init -q g && cd g && git -c user.name=n -c user.email=e commit "
         "-q --allow-empty -m m && git rev-list --count HEAD",
         "1\n"},
        {"python3 -c 'import multiprocessing as m\n"
         "print(sum(m.Pool(2).map(abs, [-1, -2])))'",
         "3\n"},
        {"python3 -c 'import os\nf = os.memfd_create(\"x\")\n"
         "os.posix_fallocate(f, 0, 4096)\nprint(os.fstat(f).st_size)'",
         "4096\n"},
        {"python3 -c 'import socket as s\na = s.create_server((\"\", 0))\n"
         "s.create_connection((\"127.0.0.1\", a.getsockname()[1]))\n"
         "print(1)'",
         "1\n"},
        {"perl -e 'print 6 * 7'", "42"},
        {"mkfifo f && (echo x >f &) && cat f", "x\n"},
        {"tar cf t.tar a.c && tar tf t.tar", "a.c\n"},
        {"echo x >/tmp/y && cat /tmp/y && echo x >/dev/shm/y", "x\n"},
        {"ln a.c hard && stat -c %h a.c", "2\n"},
        {"chmod 600 a.c && touch -d @7 a.c && stat -c '%a %Y' a.c", "600 7\n"},
        {"sleep 0.05 & wait; echo $?", "0\n"},
        {"head -c 3 /dev/urandom | wc -c", "3\n"},
        {"id -un; getent hosts localhost | wc -l", "user\n1\n"},
    };
    struct bench_box box;

    bench_create(*state, &box);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(bench_sh(*state, &box, cases[i].script, cases[i].out),
                         0);
    }
    bench_destroy(*state, &box);
}

int suite_local_isolation(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setuid_program_gives_nothing),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(what_programs_need_works),
    };

    return cmocka_run_group_tests_name("isolation", tests, bench_group_setup,
                                       bench_group_teardown);
}
