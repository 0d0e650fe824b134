/* What a program in a sandbox of `local` cannot reach. */
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"
#include "tests/contract/local_attempts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What stands outside, to be reached or not. */
struct outside {
    struct attempt_ctx ctx;
    char abstract[64];
    char file[BENCH_PATH + 16];
    int tcp;
    int unix_socket;
};

static void listen_tcp(struct outside *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);

    out->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(out->tcp, (const struct sockaddr *)&at, sizeof(at)),
                     0);
    assert_int_equal(listen(out->tcp, 16), 0);
    assert_int_equal(getsockname(out->tcp, (struct sockaddr *)&at, &size), 0);
    out->ctx.port = ntohs(at.sin_port);
}

static void listen_abstract(struct outside *out)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len;

    (void)snprintf(out->abstract, sizeof(out->abstract), "sessionfs-test-%d",
                   (int)getpid());
    len = strlen(out->abstract);
    memcpy(at.sun_path + 1, out->abstract, len);
    out->unix_socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(out->unix_socket, (const struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)),
        0);
    assert_int_equal(listen(out->unix_socket, 16), 0);
    out->ctx.abstract = out->abstract;
}

static void open_outside(struct outside *out, const struct bench *bench)
{
    int fd;

    listen_tcp(out);
    listen_abstract(out);
    (void)snprintf(out->file, sizeof(out->file), "%s/outside", bench->dir);
    fd = open(out->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "x", 1), 1);
    (void)close(fd);
    out->ctx.file = out->file;
    out->ctx.pid = fork();
    if (out->ctx.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)pause();
        _exit(0);
    }
}

static void close_outside(struct outside *out)
{
    (void)kill(out->ctx.pid, SIGKILL);
    (void)waitpid(out->ctx.pid, NULL, 0);
    (void)unlink(out->file);
    (void)close(out->tcp);
    (void)close(out->unix_socket);
}

/* Whether we, outside, can do it. */
static bool control(const struct attempt *attempt,
                    const struct attempt_ctx *ctx)
{
    pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        _exit(attempt->try(ctx) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* Puts a program of ours, by its name beside this one, into the workspace. */
static void give_program(struct bench *bench, struct bench_box *box,
                         const char *name)
{
    struct provider_root root;
    struct err err = ERR_INIT;
    char path[BENCH_PATH];
    struct stat st;
    int from;
    int to;

    local_beside(name, path);
    from = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(from >= 0);
    assert_int_equal(fstat(from, &st), 0);
    assert_int_equal(provider_root(bench->provider, &box->sandbox, &root, &err),
                     0);
    to = openat(root.fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_int_equal(sendfile(to, from, NULL, (size_t)st.st_size), st.st_size);
    assert_int_equal(fchmod(to, 0755), 0);
    (void)close(from);
    (void)close(to);
    (void)close(root.fd);
}

static void attempts_are_refused(void **state)
{
    struct outside out;
    struct bench_box box;
    struct bench_run run;
    char script[512];
    char count[32];
    int total = 0;
    int without_power = 0;
    int wrong = 0;

    bench_create(*state, &box);
    open_outside(&out, *state);
    for (size_t i = 0; attempt_tables[i]; i++) {
        for (const struct attempt *at = attempt_tables[i]; at->name; at++) {
            bool can = control(at, &out.ctx);

            total++;
            without_power += !can;
            if (!can && at->control == CONTROL_ALLOWED) {
                print_error("outside, too, it is refused: %s\n", at->name);
                wrong++;
            }
        }
    }
    give_program(*state, &box, "local_attempt");
    (void)snprintf(script, sizeof(script), "./local_attempt %d %d %s %s",
                   out.ctx.pid, out.ctx.port, out.ctx.abstract, out.ctx.file);
    (void)bench_script(*state, &box, script, &run);
    bench_closed(&run);
    (void)snprintf(count, sizeof(count), "%d attempts\n", total);
    assert_string_equal(bench_text(&run, COMMAND_STDOUT), count);
    print_message("%d attempts, of which %d fail outside, too\n", total,
                  without_power);
    bench_run_done(&run);
    assert_int_equal(wrong, 0);
    close_outside(&out);
    bench_destroy(*state, &box);
}

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
        cmocka_unit_test(attempts_are_refused),
        cmocka_unit_test(a_setuid_program_gives_nothing),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(what_programs_need_works),
    };

    return cmocka_run_group_tests_name("isolation", tests, bench_group_setup,
                                       bench_group_teardown);
}
