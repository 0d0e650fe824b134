/* The store alone: modes, the lock, generations, events as a file. */
#include "tests/cmocka.h"

#include "core/buf.h"
#include "core/json.h"
#include "core/store.h"
#include "tests/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct caller caller = {.uid = 7, .pid = 9};

struct place {
    char dir[64];
    struct store *store;
};

static void reopen(struct place *place)
{
    struct err err = ERR_INIT;

    store_close(place->store);
    place->store = NULL;
    if (store_open(place->dir, 0, &place->store, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));

    assert_non_null(place);
    scratch_make(place->dir, sizeof(place->dir));
    reopen(place);
    *state = place;
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;

    store_close(place->store);
    scratch_remove(place->dir);
    free(place);
    return 0;
}

static uint64_t add(struct place *place, const char *id)
{
    uint64_t number = 0;
    struct err err = ERR_INIT;

    assert_int_equal(store_session_add(place->store, id, "{\"provider\":\"p\"}",
                                       &caller, &number, &err),
                     0);
    return number;
}

static mode_t mode_of(const struct place *place, const char *name)
{
    char path[128];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/%s", place->dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void files_are_private_whatever_the_umask(void **state)
{
    static const mode_t masks[] = {0, 022, 0777};
    static const char *const names[] = {"state.db", "state.db-wal",
                                        "state.db-shm", "lock"};

    for (size_t i = 0; i < ARRAY_SIZE(masks); i++) {
        struct place *place = NULL;
        mode_t old = umask(masks[i]);
        void *own = NULL;

        assert_int_equal(setup(&own), 0);
        place = own;
        (void)add(place, "a");
        (void)umask(old);
        assert_int_equal(mode_of(place, "."), 0700);
        for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
            assert_int_equal(mode_of(place, names[k]), 0600);
        }
        assert_int_equal(teardown(&own), 0);
    }
    (void)state;
}

static void a_directory_of_others_is_not_taken(void **state)
{
    const struct place *place = *state;
    char dir[128];
    char file[160];
    struct store *store = NULL;
    struct err err = ERR_INIT;
    int fd;

    (void)snprintf(dir, sizeof(dir), "%s/open", place->dir);
    (void)snprintf(file, sizeof(file), "%s/theirs", dir);
    assert_int_equal(mkdir(dir, 0700), 0);
    fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(store_open(dir, 0, &store, &err), -EPERM);
    assert_int_equal(unlink(file), 0);
    err_clear(&err);
    assert_int_equal(store_open(dir, 0, &store, &err), 0);
    store_close(store);
}

static void a_missing_directory_is_made_with_its_parents(void **state)
{
    const struct place *place = *state;
    struct store *store = NULL;
    struct err err = ERR_INIT;
    char dir[128];

    (void)snprintf(dir, sizeof(dir), "%s/x/y", place->dir);
    assert_int_equal(store_open(dir, 0, &store, &err), 0);
    store_close(store);
    assert_int_equal(mode_of(place, "x"), 0700);
    assert_int_equal(mode_of(place, "x/y"), 0700);
    (void)snprintf(dir, sizeof(dir), "%s/lock/y", place->dir);
    assert_int_equal(store_open(dir, 0, &store, &err), -ENOTDIR);
    assert_int_equal(store_open("relative", 0, &store, &err), -EINVAL);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    struct store *store = NULL;
    char path[128];
    FILE *file;

    store_close(place->store);
    place->store = NULL;
    (void)snprintf(path, sizeof(path), "%s/state.db", place->dir);
    file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++) {
        assert_true(fputs("not a database\n", file) >= 0);
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(store_open(place->dir, 0, &store, &err), -EIO);
    assert_non_null(strstr(err.msg, "not a database"));
}

static void a_second_holder_is_told_the_pid_of_the_first(void **state)
{
    const struct place *place = *state;
    struct store *store = NULL;
    struct err err = ERR_INIT;
    char pid[32];

    (void)snprintf(pid, sizeof(pid), "process %d", (int)getpid());
    assert_int_equal(store_open(place->dir, 0, &store, &err), -EBUSY);
    assert_non_null(strstr(err.msg, pid));
}

/* In a child: says that it has the lock. */
static void holds(const int ends[2])
{
    (void)!write(ends[1], "", 1);
}

static void await_holder(const int ends[2])
{
    char byte;

    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
}

static void a_holder_that_is_unmounting_is_waited_for(void **state)
{
    struct place *place = *state;
    struct store *store = NULL;
    struct err err = ERR_INIT;
    int ends[2];
    int status;
    pid_t child;

    store_close(place->store);
    place->store = NULL;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        if (store_open(place->dir, 0, &store, &err) < 0) {
            _exit(1);
        }
        store_closing(store);
        holds(ends);
        (void)usleep(1500 * 1000);
        _exit(0); /* Lets the lock go. */
    }
    await_holder(ends);
    assert_int_equal(store_open(place->dir, 300, &place->store, &err), -EBUSY);
    assert_non_null(strstr(err.msg, "unmounting"));
    assert_int_equal(store_open(place->dir, 30000, &place->store, &err), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* In a child: holds the state of a mount for a while, says nothing, and goes.
 */
static pid_t hold(const struct place *place, dev_t device)
{
    struct store *store = NULL;
    struct err err = ERR_INIT;
    int ends[2];
    pid_t child;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        if (store_open(place->dir, 0, &store, &err) < 0) {
            _exit(1);
        }
        store_mounted(store, major(device), minor(device));
        holds(ends);
        (void)usleep(2500 * 1000);
        _exit(0);
    }
    await_holder(ends);
    return child;
}

static void a_holder_is_waited_for_only_when_its_mount_is_gone(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    struct stat st;
    int status;
    pid_t child;

    store_close(place->store);
    place->store = NULL;
    assert_int_equal(stat("/proc", &st), 0);
    child = hold(place, st.st_dev);
    assert_int_equal(store_open(place->dir, 30000, &place->store, &err),
                     -EBUSY);
    assert_null(strchr(strstr(err.msg, "process"), ':'));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    child = hold(place, makedev(4095, 1));
    assert_int_equal(store_open(place->dir, 30000, &place->store, &err), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_database_of_a_later_version_is_refused(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    struct store *store = NULL;
    char path[128];
    unsigned char version[4] = {0, 0, 0, 99};
    int fd;

    /* user_version lies at offset 60 of the file. */
    store_close(place->store);
    place->store = NULL;
    (void)snprintf(path, sizeof(path), "%s/state.db", place->dir);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, version, 4, 60), 4);
    (void)close(fd);
    assert_int_equal(store_open(place->dir, 0, &store, &err), -EPROTONOSUPPORT);
}

static void numbers_are_never_used_twice(void **state)
{
    struct place *place = *state;
    uint64_t first = add(place, "a");
    struct err err = ERR_INIT;

    assert_int_equal(store_session_remove(place->store, first, &err), 0);
    reopen(place);
    assert_true(add(place, "a") > first);
}

static void an_old_generation_is_refused(void **state)
{
    struct place *place = *state;
    uint64_t number = add(place, "a");
    struct store_state record = {.status = SESSION_RUNNING, .generation = 1};
    struct store_state read;
    struct err err = ERR_INIT;

    record.instance.external_id = strdup("box");
    assert_int_equal(
        store_state_save(place->store, number, 0, &record, NULL, &err), 0);
    record.generation = 2;
    assert_int_equal(
        store_state_save(place->store, number, 0, &record, NULL, &err),
        -ESTALE);
    assert_int_equal(store_state_remove(place->store, number, 0, NULL, &err),
                     -ESTALE);
    assert_int_equal(store_session_remove(place->store, number, &err),
                     -ENOTEMPTY);
    reopen(place);
    assert_int_equal(store_state_load(place->store, number, &read, &err), 0);
    assert_int_equal(read.generation, 1);
    assert_int_equal(read.status, SESSION_RUNNING);
    assert_string_equal(read.instance.external_id, "box");
    assert_null(read.instance.metadata);
    store_state_done(&read);
    assert_int_equal(store_state_remove(place->store, number, 1, NULL, &err),
                     0);
    assert_int_equal(store_state_load(place->store, number, &read, &err),
                     -ENOENT);
    store_state_done(&record);
}

static void events_read_as_one_file_from_any_offset(void **state)
{
    struct place *place = *state;
    uint64_t number = add(place, "a");
    uint64_t other = add(place, "b");
    struct store_event event = {.name = "test", .caller = &caller};
    struct js *detail = js_object();
    struct err err = ERR_INIT;
    char whole[8192];
    char part[64];
    uint64_t offset = 0;
    ssize_t size;

    js_set_int(detail, "x", 1);
    for (unsigned i = 0; i < 20; i++) {
        event.exec = i;
        event.detail = i % 2 ? detail : NULL;
        assert_int_equal(
            store_event_add(place->store, i % 3 ? number : other, &event, &err),
            0);
    }
    size = store_events_read(place->store, number, &offset, whole,
                             sizeof(whole), &err);
    assert_true(size > 0);
    assert_int_equal(store_events_end(place->store, number), size);
    for (ssize_t at = 0; at <= size + 1; at += 1) {
        size_t left = at < size ? (size_t)(size - at) : 0;
        size_t want = left < sizeof(part) ? left : sizeof(part);

        offset = (uint64_t)at;
        assert_int_equal(store_events_read(place->store, number, &offset, part,
                                           sizeof(part), &err),
                         want);
        assert_memory_equal(part, whole + at, want);
    }
    whole[size] = '\0';
    assert_non_null(strstr(whole, "\"seq\":1,\"event\":\"session.created\","
                                  "\"uid\":7,\"pid\":9,\"detail\":{}}\n"));
    assert_non_null(strstr(whole, "\"seq\":2,\"event\":\"test\",\"exec\":1,"
                                  "\"uid\":7,\"pid\":9,"
                                  "\"detail\":{\"x\":1}}\n"));
    js_free(detail);
}

/* The first and the last number in a part of the events. */
static void seqs(const char *text, unsigned long *first, unsigned long *last)
{
    const char *at = strstr(text, "\"seq\":");

    assert_non_null(at);
    *first = strtoul(at + 6, NULL, 10);
    while (at) {
        *last = strtoul(at + 6, NULL, 10);
        at = strstr(at + 1, "\"seq\":");
    }
}

static void the_oldest_events_go_and_the_others_keep_their_offsets(void **state)
{
    struct place *place = *state;
    uint64_t number = add(place, "a");
    uint64_t other = add(place, "b");
    const struct store_event event = {.name = "test"};
    unsigned long first = 0, last = 0;
    struct err err = ERR_INIT;
    uint64_t begin = 0, end, offset;
    char text[4096] = "";

    store_events_keep(place->store, 16);
    for (unsigned i = 2; i < 200; i++) {
        end = store_events_end(place->store, number);
        assert_int_equal(store_event_add(place->store, number, &event, &err),
                         0);
        assert_true(store_events_begin(place->store, number) >= begin);
        begin = store_events_begin(place->store, number);
        offset = end; /* The new one is where the end was. */
        assert_true(store_events_read(place->store, number, &offset, text,
                                      sizeof(text) - 1, &err) > 0);
        assert_int_equal(offset, end);
        seqs(text, &first, &last);
        assert_int_equal(first, i);
        offset = 0; /* Who asks for what is gone gets the first. */
        memset(text, 0, sizeof(text));
        assert_true(store_events_read(place->store, number, &offset, text,
                                      sizeof(text) - 1, &err) > 0);
        assert_int_equal(offset, begin);
        seqs(text, &first, &last);
        assert_int_equal(last, i);
        assert_true(i < 16 || last - first + 1 >= 16);
        assert_true(last - first + 1 < 16 + 3);
        if (i % 50 == 0) {
            reopen(place);
            store_events_keep(place->store, 16);
        }
    }
    assert_int_equal(store_events_begin(place->store, other), 0);
}

static void the_last_twenty_failures_are_kept(void **state)
{
    struct place *place = *state;
    struct buf text = BUF_INIT(4096);
    struct err err = ERR_INIT;

    for (int i = 0; i < 25; i++) {
        char line[16];
        int n = snprintf(line, sizeof(line), "line %d\n", i);

        assert_int_equal(
            store_failure_add(place->store, 0, line, (size_t)n, &err), 0);
        assert_int_equal(
            store_failure_add(place->store, 5, line, (size_t)n, &err), 0);
    }
    assert_int_equal(store_failures(place->store, 0, &text, &err), 0);
    assert_memory_equal(buf_str(&text), "line 5\n", 7);
    assert_string_equal(buf_str(&text) + text.size - 8, "line 24\n");
    buf_done(&text);
}

static void open_commands_are_lost_at_the_next_start(void **state)
{
    struct place *place = *state;
    uint64_t number = add(place, "a");
    struct exec_info infos[3];
    struct store_event event = {.name = "exec.ended", .caller = &caller};
    const struct store_exec row = {.script = "x", .size = 1};
    struct err err = ERR_INIT;
    struct exec_info read;

    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(store_exec_add(place->store, number, &row, &caller,
                                        &infos[i], &err),
                         0);
        assert_int_equal(infos[i].n, i + 1);
    }
    infos[0].status = EXEC_EXITED;
    infos[0].has_exit_code = true;
    infos[0].exit_code = 5;
    infos[1].status = EXEC_RUNNING;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            store_exec_save(place->store, number, &infos[i], &event, &err), 0);
    }
    reopen(place);
    assert_int_equal(store_exec_lose_all(place->store, NULL, 0, &err), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            store_exec_load(place->store, number, i + 1, &read, &err), 0);
        assert_int_equal(read.status, i ? EXEC_LOST : EXEC_EXITED);
        assert_int_equal(read.has_exit_code, i == 0);
        assert_int_equal(read.err.code, i ? ESTALE : 0);
    }
}

/* On a disk of its own, which only root can make. */
static void a_full_disk_lets_a_deletion_be_recorded(void **state)
{
    struct place *place = *state;
    const struct store_event event = {.name = "x", .caller = &caller};
    struct err err = ERR_INIT;
    char path[128];
    char block[65536] = {1};
    uint64_t number;
    int rc = 0;
    int fd;

    store_close(place->store);
    place->store = NULL;
    if (mount("tmpfs", place->dir, "tmpfs", 0, "size=16m,mode=700") < 0) {
        skip();
    }
    reopen(place);
    number = add(place, "a");
    (void)snprintf(path, sizeof(path), "%s/filler", place->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, block, sizeof(block)) > 0) {
    }
    (void)close(fd);
    for (int i = 0; i < 10000 && rc == 0; i++) {
        rc = store_event_add(place->store, number, &event, &err);
    }
    assert_int_equal(rc, -ENOSPC);
    store_spend_reserve(place->store);
    assert_int_equal(store_event_add(place->store, number, &event, &err), 0);
    assert_int_equal(unlink(path), 0);
    store_keep_reserve(place->store);
    store_close(place->store);
    place->store = NULL;
    assert_int_equal(umount2(place->dir, MNT_DETACH), 0);
}

static void a_config_that_is_no_json_is_in_the_way_of_none(void **state)
{
    struct place *place = *state;
    struct err err = ERR_INIT;
    uint64_t number = 0;

    assert_int_equal(
        store_session_add(place->store, "a", "{", &caller, &number, &err), 0);
    assert_int_equal(store_provider_used(place->store, "p", &err), 0);
    (void)add(place, "b");
    assert_int_equal(store_provider_used(place->store, "p", &err), 1);
    assert_int_equal(store_provider_used(place->store, "q", &err), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(files_are_private_whatever_the_umask),
        T(a_directory_of_others_is_not_taken),
        T(a_missing_directory_is_made_with_its_parents),
        T(a_file_that_is_no_database_is_refused),
        T(a_second_holder_is_told_the_pid_of_the_first),
        T(a_holder_that_is_unmounting_is_waited_for),
        T(a_holder_is_waited_for_only_when_its_mount_is_gone),
        T(a_database_of_a_later_version_is_refused),
        T(numbers_are_never_used_twice),
        T(an_old_generation_is_refused),
        T(a_config_that_is_no_json_is_in_the_way_of_none),
        T(events_read_as_one_file_from_any_offset),
        T(the_oldest_events_go_and_the_others_keep_their_offsets),
        T(the_last_twenty_failures_are_kept),
        T(open_commands_are_lost_at_the_next_start),
        T(a_full_disk_lets_a_deletion_be_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
