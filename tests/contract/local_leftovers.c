/* What `local` leaves behind: nothing, however it ends. */
#include "core/cleanup.h"
#include "core/clock.h"
#include "providers/local/cgroup.h"
#include "tests/cmocka.h"
#include "tests/contract/bench.h"
#include "tests/contract/local.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    SOON_MS = 10000,
    STAYS_MS = 1200
};

/* The keeper that a process has started: its cgroup's name tells its pid. */
struct keeper {
    pid_t pid;
    int self; /* The cgroup that we are in. */
    char name[64];
};

static pid_t parent_of(pid_t pid)
{
    char path[64];
    char line[256];
    FILE *file;
    int parent = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        (void)sscanf(line, "PPid: %d", &parent);
    }
    if (file) {
        (void)fclose(file);
    }
    return parent;
}

/* Finds the keeper of a process; false when it has none. */
static bool find_keeper(pid_t of, struct keeper *out)
{
    struct err err = ERR_INIT;
    const struct dirent *entry;
    bool found = false;
    int mount = -1;
    DIR *dir;

    assert_int_equal(cgroup_open_self(&mount, &out->self, &err), 0);
    (void)close(mount);
    dir = fdopendir(openat(out->self, ".", O_RDONLY | O_DIRECTORY));
    assert_non_null(dir);
    for (entry = readdir(dir); entry && !found; entry = readdir(dir)) {
        int pid;

        if (sscanf(entry->d_name, "sessionfs-keeper.%d.", &pid) == 1 &&
            parent_of(pid) == of) {
            out->pid = pid;
            (void)snprintf(out->name, sizeof(out->name), "%.60s",
                           entry->d_name);
            found = true;
        }
    }
    (void)closedir(dir);
    if (!found) {
        (void)close(out->self);
    }
    return found;
}

static bool cgroup_there(const struct keeper *keeper)
{
    struct stat st;

    return fstatat(keeper->self, keeper->name, &st, 0) == 0;
}

/* Its processes are in the cgroup, so with that they are gone, too. */
static void is_gone_soon(struct keeper *keeper)
{
    int64_t deadline = clock_deadline(SOON_MS);

    while ((cgroup_there(keeper) || kill(keeper->pid, 0) == 0) &&
           clock_ms() < deadline) {
        (void)poll(NULL, 0, 10);
    }
    assert_false(cgroup_there(keeper));
    assert_int_equal(kill(keeper->pid, 0), -1);
    (void)close(keeper->self);
}

static char *read_mounts(void)
{
    struct buf buf = BUF_INIT(1 << 20);
    char data[4096];
    int fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, data, sizeof(data));

    while (n > 0) {
        assert_int_equal(buf_add(&buf, data, (size_t)n), 0);
        n = read(fd, data, sizeof(data));
    }
    (void)close(fd);
    return buf.data;
}

static int count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(dir)) {
        n++;
    }
    (void)closedir(dir);
    return n;
}

/* Processes that do not want to end, and some that nobody waits for. */
static const char stubborn[] =
    "setsid sh -c 'trap \"\" TERM HUP; sleep 4322; sleep 4322' & "
    "sleep 4322 >/dev/null 2>&1 & echo ready; wait";

static void a_close_leaves_nothing(void **state)
{
    AUTO_FREE char *before = read_mounts();
    AUTO_FREE char *during = NULL;
    AUTO_FREE char *after = NULL;
    struct bench bench;
    struct bench_box box;
    struct bench_run run;
    struct keeper keeper;
    int fds = count_fds();

    (void)state;
    bench_open(&bench);
    assert_true(find_keeper(getpid(), &keeper));
    bench_create(&bench, &box);
    (void)bench_script(&bench, &box, stubborn, &run);
    bench_says(&run, "ready");
    assert_true(cgroup_there(&keeper));
    during = read_mounts();
    assert_string_equal(during, before);
    bench_close(&bench);
    bench_closed(&run);
    bench_run_done(&run);
    instance_done(&box.instance);
    is_gone_soon(&keeper);
    after = read_mounts();
    assert_string_equal(after, before);
    assert_int_equal(count_fds(), fds);
}

static void many_sandboxes_leave_no_fd(void **state)
{
    struct bench *bench = *state;
    int fds = count_fds();

    for (int i = 0; i < 30; i++) {
        struct bench_box box;

        bench_create(bench, &box);
        assert_int_equal(bench_sh(bench, &box, "echo x", "x\n"), 0);
        bench_destroy(bench, &box);
    }
    /* The loop closes what belongs to a command after it has said so. */
    for (int64_t deadline = clock_deadline(SOON_MS);
         count_fds() != fds && clock_ms() < deadline;) {
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(count_fds(), fds);
}

/* A process that opens a provider, starts a stubborn command, and waits. */
NORETURN static void use_and_wait(int ready)
{
    struct bench bench;
    struct bench_box box;
    struct bench_run run;

    bench_open(&bench);
    bench_create(&bench, &box);
    (void)bench_script(&bench, &box, stubborn, &run);
    bench_says(&run, "ready");
    if (write(ready, bench.dir, sizeof(bench.dir)) < 0) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

/* Its keeper waits for the next user, while one can come: none does where the
 * state is gone. */
static void a_killed_user_leaves_what_ends_with_its_state(void **state)
{
    char dir[BENCH_PATH] = "";
    char command[BENCH_PATH + 16];
    struct keeper keeper;
    int pair[2];
    pid_t pid;

    (void)state;
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        use_and_wait(pair[1]);
    }
    (void)close(pair[1]);
    assert_int_equal(read(pair[0], dir, sizeof(dir)), sizeof(dir));
    (void)close(pair[0]);
    assert_true(find_keeper(pid, &keeper));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)poll(NULL, 0, STAYS_MS);
    assert_int_equal(kill(keeper.pid, 0), 0);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
    is_gone_soon(&keeper);
}

static void must_resume(struct bench *bench, struct bench_box *box)
{
    struct err err = ERR_INIT;

    bench->limits.deadline_ms = clock_deadline(SOON_MS);
    if (provider_resume(bench->provider, &box->sandbox, &bench->limits, &err) <
        0) {
        print_error("%s\n", err.msg);
        fail();
    }
}

/* Its process 1 is told to die, and dies a moment later. */
static void is_paused_soon(struct bench *bench, struct bench_box *box)
{
    int64_t deadline = clock_deadline(SOON_MS);

    while (bench_status(bench, box) == PROVIDER_RUNNING &&
           clock_ms() < deadline) {
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(bench_status(bench, box), PROVIDER_PAUSED);
}

static void a_killed_keeper_is_noticed_and_replaced(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    struct bench_box other;
    struct bench_run run;
    struct keeper keeper;

    bench_create(bench, &box);
    bench_create(bench, &other);
    assert_int_equal(bench_sh(bench, &box, "echo kept >file", ""), 0);
    (void)bench_script(bench, &box, stubborn, &run);
    bench_says(&run, "ready");
    assert_true(find_keeper(getpid(), &keeper));
    assert_int_equal(kill(keeper.pid, SIGKILL), 0);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_LOST);
    bench_run_done(&run);
    is_paused_soon(bench, &box);
    is_paused_soon(bench, &other);
    must_resume(bench, &box);
    is_gone_soon(&keeper);
    assert_int_equal(bench_status(bench, &box), PROVIDER_RUNNING);
    assert_int_equal(bench_sh(bench, &box, "cat file", "kept\n"), 0);
    must_resume(bench, &other);
    assert_int_equal(bench_status(bench, &other), PROVIDER_RUNNING);
    bench_destroy(bench, &box);
    bench_destroy(bench, &other);
}

/* The host pid of a sandbox's process 1, when it is the only sandbox. */
static pid_t init_of_only_sandbox(const struct keeper *keeper)
{
    AUTO_FD int fd =
        openat(keeper->self, keeper->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(dup(fd));
    const struct dirent *entry;
    int pid = 0;

    assert_non_null(dir);
    for (entry = readdir(dir); entry; entry = readdir(dir)) {
        char path[300];
        FILE *file;

        (void)snprintf(path, sizeof(path), "%s/cgroup.procs", entry->d_name);
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') {
            continue;
        }
        file = fdopen(openat(fd, path, O_RDONLY | O_CLOEXEC), "r");
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%d", &pid), 1);
        (void)fclose(file);
    }
    (void)closedir(dir);
    return pid;
}

static void a_killed_init_is_noticed_and_replaced(void **state)
{
    struct bench *bench = *state;
    struct bench_box box;
    struct bench_run run;
    struct keeper keeper;
    pid_t init;

    bench_create(bench, &box);
    assert_int_equal(bench_sh(bench, &box, "echo kept >file", ""), 0);
    (void)bench_script(bench, &box, stubborn, &run);
    bench_says(&run, "ready");
    assert_true(find_keeper(getpid(), &keeper));
    init = init_of_only_sandbox(&keeper);
    assert_true(init > 1);
    assert_int_equal(kill(init, SIGKILL), 0);
    bench_closed(&run);
    assert_int_equal(run.result.end, COMMAND_LOST);
    bench_run_done(&run);
    is_paused_soon(bench, &box);
    must_resume(bench, &box);
    assert_int_equal(bench_sh(bench, &box, "cat file", "kept\n"), 0);
    bench_destroy(bench, &box);
    (void)close(keeper.self);
}

/* In a child: what open says there is the exit status. */
static void open_fails_there(void (*become)(void))
{
    struct bench bench = {.dir = "/tmp"};
    struct err err = ERR_INIT;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        become();
        bench.env.state_dir = bench.dir;
        if (loop_new(&bench.loop, &err) < 0) {
            _exit(2);
        }
        bench.env.loop = bench.loop;
        if (provider_open(bench_ops(), &bench.env, &bench.provider, &err) ==
            0) {
            _exit(3);
        }
        (void)fprintf(stderr, "refused: %s\n", err.msg);
        _exit(err.code != 0 && strlen(err.msg) > 20 ? 0 : 4);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (write(fd, text, strlen(text)) < 0) {
        perror(path);
        _exit(5);
    }
    (void)close(fd);
}

/* Its ids mean nothing. */
static void enter_user_namespace(void)
{
    if (unshare(CLONE_NEWUSER) < 0) {
        _exit(5);
    }
}

/* As a machine whose operator refuses them. */
static void have_no_namespaces_left(void)
{
    enter_user_namespace();
    write_file("/proc/self/uid_map", "1000 0 1");
    write_file("/proc/sys/user/max_user_namespaces", "0");
}

static void without_namespaces_it_refuses_with_words(void **state)
{
    (void)state;
    open_fails_there(enter_user_namespace);
    open_fails_there(have_no_namespaces_left);
}

int suite_local_leftovers(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(many_sandboxes_leave_no_fd,
                                        bench_group_setup,
                                        bench_group_teardown),
        cmocka_unit_test(a_close_leaves_nothing),
        cmocka_unit_test(a_killed_user_leaves_what_ends_with_its_state),
        cmocka_unit_test_setup_teardown(a_killed_keeper_is_noticed_and_replaced,
                                        bench_group_setup,
                                        bench_group_teardown),
        cmocka_unit_test_setup_teardown(a_killed_init_is_noticed_and_replaced,
                                        bench_group_setup,
                                        bench_group_teardown),
        cmocka_unit_test(without_namespaces_it_refuses_with_words),
    };

    return cmocka_run_group_tests_name("leftovers", tests, NULL, NULL);
}
