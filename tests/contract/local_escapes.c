/*
 * What a program in a sandbox of `local` tries in vain: the attempts, each
 * tried outside first, and a table of what became of them.
 */
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"
#include "tests/contract/local_attempts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
    POWER_LEAST = 70,
    NORMAL_USER = 65534,
    LONG_ENOUGH_S = 60,
};

/* What stands outside, to be reached or not. */
struct outside {
    struct attempt_ctx ctx;
    char abstract[64];
    char file[BENCH_PATH + 16];
    char path[BENCH_PATH + 32]; /* Of a socket. */
    int sockets[3];
    int objects[3]; /* Memory, semaphores, messages. */
};

static void listen_tcp(struct outside *out)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    out->sockets[0] = fd;
    out->ctx.port = ntohs(at.sin_port);
}

static int listen_unix(const struct sockaddr_un *at, size_t len)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    len += offsetof(struct sockaddr_un, sun_path);
    assert_int_equal(bind(fd, (const struct sockaddr *)at, (socklen_t)len), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void listen_abstract(struct outside *out)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)snprintf(out->abstract, sizeof(out->abstract), "sessionfs-test-%d",
                   (int)getpid());
    memcpy(at.sun_path + 1, out->abstract, strlen(out->abstract));
    out->sockets[1] = listen_unix(&at, 1 + strlen(out->abstract));
    out->ctx.abstract = out->abstract;
}

static void listen_path(struct outside *out)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    (void)snprintf(out->path, sizeof(out->path), "%s.sock", out->file);
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", out->path);
    out->sockets[2] = listen_unix(&at, sizeof(at.sun_path));
    (void)chmod(out->path, 0777);
}

/* Objects that any user outside may find. */
static void make_objects(struct outside *out)
{
    char name[80];
    mode_t mask = umask(0);

    out->ctx.key = 0x53460000 | (getpid() & 0xffff);
    out->objects[0] = shmget(out->ctx.key, 4096, IPC_CREAT | 0666);
    out->objects[1] = semget(out->ctx.key, 1, IPC_CREAT | 0666);
    out->objects[2] = msgget(out->ctx.key, IPC_CREAT | 0666);
    (void)snprintf(name, sizeof(name), "/%s", out->abstract);
    (void)mq_close(mq_open(name, O_RDWR | O_CREAT, 0666, NULL));
    (void)snprintf(name, sizeof(name), "/dev/shm/%s", out->abstract);
    (void)close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    (void)umask(mask);
}

static void remove_objects(const struct outside *out)
{
    char name[80];

    (void)shmctl(out->objects[0], IPC_RMID, NULL);
    (void)semctl(out->objects[1], 0, IPC_RMID);
    (void)msgctl(out->objects[2], IPC_RMID, NULL);
    (void)snprintf(name, sizeof(name), "/%s", out->abstract);
    (void)mq_unlink(name);
    (void)snprintf(name, sizeof(name), "/dev/shm/%s", out->abstract);
    (void)unlink(name);
}

static void open_outside(struct outside *out, const struct bench *bench)
{
    int fd;

    (void)chmod(bench->dir, 0711);
    listen_tcp(out);
    listen_abstract(out);
    (void)snprintf(out->file, sizeof(out->file), "%s/outside", bench->dir);
    fd = open(out->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(fchmod(fd, 0644), 0);
    (void)close(fd);
    out->ctx.file = out->file;
    listen_path(out);
    make_objects(out);
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
    remove_objects(out);
    (void)unlink(out->path);
    (void)unlink(out->file);
    for (size_t i = 0; i < ARRAY_SIZE(out->sockets); i++) {
        (void)close(out->sockets[i]);
    }
}

static void must(int rc)
{
    if (rc < 0) {
        abort();
    }
}

/* So that what root can do does no harm to the machine. */
static void leave(int namespaces)
{
    /* A directory that everybody may write to. */
    must(chdir("/tmp"));
    if (geteuid() == 0) {
        must(unshare(CLONE_NEWNS | CLONE_NEWUTS | namespaces));
        must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    }
}

static void become_normal(void)
{
    if (geteuid() == 0) {
        must(setgroups(0, NULL));
        must(setresgid(NORMAL_USER, NORMAL_USER, NORMAL_USER));
        must(setresuid(NORMAL_USER, NORMAL_USER, NORMAL_USER));
        must(prctl(PR_SET_DUMPABLE, 1));
    }
}

/* Goes on in a child; ends as that did. */
static void go_on_in_child(void)
{
    pid_t pid = fork();
    int status = 0;

    must(pid);
    if (pid > 0) {
        must(waitpid(pid, &status, 0));
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 255);
    }
}

/* Process 1 is one that guards itself in no way, as in other sandboxes. */
static void go_below_an_own_init(void)
{
    leave(CLONE_NEWPID);
    go_on_in_child();
    must(mount("proc", "/proc", "proc", 0, NULL));
}

static void as_root(void)
{
    leave(0);
}

static void as_user(void)
{
    leave(0);
    become_normal();
}

static void as_root_below_an_own_init(void)
{
    go_below_an_own_init();
    go_on_in_child();
}

static void as_user_below_an_own_init(void)
{
    go_below_an_own_init();
    become_normal();
    go_on_in_child();
}

static int user_namespace(const struct attempt_ctx *ctx)
{
    (void)ctx;
    return unshare(CLONE_NEWUSER);
}

/* Whether it is allowed outside, whatever process 1 is there. */
static int control(const struct attempt *at, const struct attempt_ctx *ctx,
                   void (*plain)(void), void (*below)(void),
                   char out[ATTEMPT_RESULT])
{
    char again[ATTEMPT_RESULT];
    int can = attempt_try(at, ctx, plain, out);

    if (!can && geteuid() == 0) {
        can = attempt_try(at, ctx, below, again);
        if (can) {
            (void)snprintf(out, ATTEMPT_RESULT, "%s", again);
        }
    }
    return can;
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

/* Runs the program in a sandbox of this bench; what it said is to be freed. */
static char *run_inside(struct bench *bench, const struct outside *out)
{
    const struct attempt_ctx *ctx = &out->ctx;
    struct bench_box box;
    struct bench_run run;
    char script[1024];
    char *said;

    bench_create(bench, &box);
    give_program(bench, &box, "local_attempt");
    (void)snprintf(script, sizeof(script), "./local_attempt %d %d %d %s %s",
                   ctx->pid, ctx->port, ctx->key, ctx->abstract, ctx->file);
    (void)bench_script(bench, &box, script, &run);
    bench_closed(&run);
    said = strdup(bench_text(&run, COMMAND_STDOUT));
    bench_run_done(&run);
    bench_destroy(bench, &box);
    return said;
}

/* The first directory on the way to `path` that is closed to others, cut off
 * from it; false: there is none. */
static bool find_closed(const char *path, char out[BENCH_PATH])
{
    struct stat st;

    for (const char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        (void)snprintf(out, BENCH_PATH, "%.*s", (int)(at - path), path);
        if (stat(out, &st) == 0 && !(st.st_mode & S_IXOTH)) {
            return true;
        }
    }
    return false;
}

/* Lets everybody reach the programs of the build by their names, in a mount
 * namespace of its own: the directory of the build may be closed to others. */
static void open_programs(void)
{
    char path[BENCH_PATH];
    char closed[BENCH_PATH];
    char own[40];
    int fd;

    local_beside("", path);
    if (geteuid() != 0 || !find_closed(path, closed)) {
        return;
    }
    must(unshare(CLONE_NEWNS));
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    must(fd);
    must(mount("none", closed, "tmpfs", 0, "mode=755"));
    for (char *at = strchr(path + strlen(closed) + 1, '/'); at;
         at = strchr(at + 1, '/')) {
        *at = '\0';
        must(mkdir(path, 0700));
        must(chmod(path, 0755));
        *at = '/';
    }
    (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    must(mount(own, path, NULL, MS_BIND, NULL));
    (void)close(fd);
}

/* As a normal user who makes sandboxes; writes what was said to `to`. */
NORETURN static void be_user_with_sandbox(const struct outside *out, int to)
{
    struct bench bench;
    char *said;

    (void)alarm(LONG_ENOUGH_S);
    open_programs();
    become_normal();
    bench_open(&bench);
    said = run_inside(&bench, out);
    (void)!write(to, said, strlen(said));
    bench_close(&bench);
    _exit(0);
}

static char *run_inside_of_user(const struct outside *out)
{
    char *said = calloc(1, PIPE_BUF * 16);
    size_t size = 0;
    ssize_t n = 1;
    int pair[2];
    pid_t pid;

    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        be_user_with_sandbox(out, pair[1]);
    }
    (void)close(pair[1]);
    while (n > 0) {
        n = read(pair[0], said + size, PIPE_BUF * 16 - 1 - size);
        size += n > 0 ? (size_t)n : 0;
    }
    (void)close(pair[0]);
    assert_int_equal(waitpid(pid, &(int){0}, 0), pid);
    return said;
}

/* What was found, over all tables. */
struct tally {
    const char *said;      /* What is left of the output from inside. */
    const char *user_said; /* That of a user's sandbox; NULL: there is none. */
    int attempts;
    int with_power;
    int as_user; /* Of which a normal user outside can do. */
    int wrong;
};

/* What the program inside said of one attempt. */
static void said_of(const char **said, const char *name,
                    char out[ATTEMPT_RESULT])
{
    size_t len = strlen(name);
    const char *end = *said ? strchr(*said, '\n') : NULL;

    (void)snprintf(out, ATTEMPT_RESULT, *said ? "not tried" : "-");
    if (end && strncmp(*said, name, len) == 0 && (*said)[len] == '\t') {
        (void)snprintf(out, ATTEMPT_RESULT, "%.*s",
                       (int)(end - *said - (ptrdiff_t)len - 1),
                       *said + len + 1);
        *said = end + 1;
    }
}

static bool refused(const char *result)
{
    return strcmp(result, "allowed") != 0 && strcmp(result, "not tried") != 0;
}

static void judge(const struct attempt *at, const struct attempt_ctx *ctx,
                  struct tally *tally)
{
    char root[ATTEMPT_RESULT];
    char user[ATTEMPT_RESULT];
    char inside[ATTEMPT_RESULT];
    char of_user[ATTEMPT_RESULT];
    int power = control(at, ctx, as_root, as_root_below_an_own_init, root);
    int by_user = control(at, ctx, as_user, as_user_below_an_own_init, user);
    const char *word = power || by_user ? "" : "  (without power)";

    said_of(&tally->said, at->name, inside);
    said_of(&tally->user_said, at->name, of_user);
    if (!refused(inside) || !refused(of_user)) {
        word = "  ESCAPED";
        tally->wrong++;
    }
    if (!power && at->control == CONTROL_ALLOWED) {
        word = "  OUTSIDE, TOO, IT IS REFUSED";
        tally->wrong++;
    }
    tally->attempts++;
    tally->with_power += power || by_user;
    tally->as_user += by_user;
    print_message("%-40s %-10s %-10s %-10s %-10s%s\n", at->name, root, user,
                  inside, of_user, word);
}

/* All that a sandbox is meant to let be, it does. */
static void judge_design(struct tally *tally)
{
    for (const struct attempt *at = attempts_by_design; at->name; at++) {
        char inside[ATTEMPT_RESULT];
        char of_user[ATTEMPT_RESULT];

        said_of(&tally->said, at->name, inside);
        said_of(&tally->user_said, at->name, of_user);
        print_message("%-40s %-10s %-10s %-10s %-10s  (by design)\n", at->name,
                      "", "", inside, of_user);
        tally->wrong +=
            refused(inside) || (tally->user_said && refused(of_user));
    }
}

static bool users_have_namespaces(void)
{
    const struct attempt make = {.name = "", .try = user_namespace};
    const struct attempt_ctx none = {.row = NULL};
    char result[ATTEMPT_RESULT];

    return attempt_try(&make, &none, as_user, result);
}

static void attempts_are_refused(void **state)
{
    struct outside out;
    struct tally tally = {.attempts = 0};
    char *said;
    char *user_said = NULL;

    open_outside(&out, *state);
    said = run_inside(*state, &out);
    tally.said = said;
    if (users_have_namespaces()) {
        user_said = run_inside_of_user(&out);
        tally.user_said = user_said;
    }
    print_message("%-40s %-10s %-10s %-10s %-10s\n", "attempt", "root", "user",
                  "inside", "of a user");
    for (size_t i = 0; attempt_tables[i]; i++) {
        for (const struct attempt *at = attempt_tables[i]; at->name; at++) {
            judge(at, &out.ctx, &tally);
        }
    }
    judge_design(&tally);
    print_message("%d attempts, %d with power, %d of a normal user, "
                  "%d without power%s\n",
                  tally.attempts, tally.with_power, tally.as_user,
                  tally.attempts - tally.with_power,
                  user_said ? "" : "; users may make no namespaces here");
    free(user_said);
    free(said);
    close_outside(&out);
    assert_int_equal(tally.wrong, 0);
    assert_true(tally.with_power >= POWER_LEAST);
}

/* Before the provider is opened, so that its keeper could hand it on. */
static int set_up(void **state)
{
    return setenv(ATTEMPT_SECRET, "1", 1) < 0 ? -1 : bench_group_setup(state);
}

int suite_local_escapes(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attempts_are_refused),
    };

    return cmocka_run_group_tests_name("escapes", tests, set_up,
                                       bench_group_teardown);
}
