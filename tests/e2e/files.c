/* A POSIX tree: system calls below workspace/. */
#include "tests/e2e/tools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define W(name) in("workspace/" name)

static struct stat stat_of(const char *path)
{
    struct stat st;

    if (lstat(path, &st) != 0) {
        fail_msg("lstat %s: %s", path, strerror(errno));
    }
    return st;
}

static int open_ok(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);

    if (fd < 0) {
        fail_msg("open %s: %s", path, strerror(errno));
    }
    return fd;
}

/* What an engine cannot do is said, never ignored. */
static bool refused(int rc)
{
    if (rc == 0) {
        return false;
    }
    if (mnt_local() || (errno != EOPNOTSUPP && errno != EPERM)) {
        fail_msg("%s", strerror(errno));
    }
    return true;
}

static void files_are_written_read_and_cut(void **state)
{
    int fd;

    (void)state;
    put_ok(W("f"), "hello world");
    expect_text(W("f"), "hello world");
    put_ok(W("f"), "bye");
    expect_text(W("f"), "bye");
    assert_int_equal(put_bytes(W("f"), O_APPEND, "!!", 2).close, 0);
    expect_text(W("f"), "bye!!");
    expect_ok(truncate(W("f"), 2));
    expect_text(W("f"), "by");
    expect_ok(truncate(W("f"), 4));
    assert_int_equal(stat_of(W("f")).st_size, 4);
    fd = open_ok(W("f"), O_RDWR);
    assert_int_equal(pwrite(fd, "z", 1, 3), 1);
    assert_int_equal(pwrite(fd, "a", 1, 0), 1);
    assert_int_equal(pwrite(fd, "end", 3, 1 << 20), 3);
    expect_ok(fsync(fd));
    expect_ok(fdatasync(fd));
    expect_ok(ftruncate(fd, 5));
    expect_ok(close(fd));
    expect_shell("od -An -c workspace/f", "   a   y  \\0   z  \\0\n");
    expect_errno(truncate(W("none"), 0), ENOENT);
    expect_errno(open(W("f/x"), O_RDONLY), ENOTDIR);
    expect_errno(open(W("."), O_WRONLY), EISDIR);
}

static void exclusive_creation_has_one_winner(void **state)
{
    (void)state;
    put_ok(W("f"), "1");
    expect_errno(open(W("f"), O_CREAT | O_EXCL | O_WRONLY, 0600), EEXIST);
    expect_ok(unlink(W("f")));
    expect_shell("cd workspace; for i in $(seq 40); do\n"
                 "for j in 1 2 3 4; do ( set -C; echo $j > l ) 2>/dev/null && "
                 "echo $i & done; wait; rm l\n"
                 "done | sort -n | uniq -c | awk '$1 != 1'",
                 "");
}

static void rename_does_what_its_flags_say(void **state)
{
    int fd;

    (void)state;
    put_ok(W("a"), "a");
    put_ok(W("b"), "b");
    fd = open_ok(W("b"), O_RDONLY);
    expect_ok(rename(W("a"), W("b")));
    expect_errno(access(W("a"), F_OK), ENOENT);
    expect_text(W("b"), "a");
    expect_ok(close(fd));
    put_ok(W("c"), "c");
    expect_errno(
        renameat2(AT_FDCWD, W("b"), AT_FDCWD, W("c"), RENAME_NOREPLACE),
        EEXIST);
    expect_ok(renameat2(AT_FDCWD, W("b"), AT_FDCWD, W("d"), RENAME_NOREPLACE));
    if (renameat2(AT_FDCWD, W("c"), AT_FDCWD, W("d"), RENAME_EXCHANGE) < 0) {
        /* An engine may lack it: not done, and said so. */
        assert_int_equal(errno, EINVAL);
        assert_true(mnt_scripts());
        expect_text(W("c"), "c");
        expect_text(W("d"), "a");
    } else {
        expect_text(W("c"), "a");
        expect_text(W("d"), "c");
    }
    expect_errno(renameat2(AT_FDCWD, W("c"), AT_FDCWD, W("d"), RENAME_WHITEOUT),
                 EINVAL);
    expect_errno(
        renameat2(AT_FDCWD, W("c"), AT_FDCWD, W("none"), RENAME_EXCHANGE),
        ENOENT);
    expect_ok(mkdir(W("dir"), 0755));
    expect_errno(rename(W("c"), W("dir")), EISDIR);
    expect_errno(rename(W("dir"), W("c")), ENOTDIR);
    expect_errno(rename(W("dir"), W("dir/sub")), EINVAL);
    mnt_session("elsewhere");
    expect_errno(rename(W("c"), at("sessions/elsewhere/workspace/c")), EXDEV);
    expect_errno(rename(W("c"), in("c")), EPERM);
}

static void directories_move_with_their_children(void **state)
{
    struct stat before;
    struct stat after;
    int fd;

    (void)state;
    expect_ok(mkdir(W("d"), 0755));
    expect_ok(mkdir(W("d/e"), 0755));
    put_ok(W("d/e/f"), "deep");
    fd = open_ok(W("d/e/f"), O_RDWR);
    before = stat_of(W("d/e/f"));
    expect_ok(rename(W("d"), W("moved")));
    expect_text(W("moved/e/f"), "deep");
    after = stat_of(W("moved/e/f"));
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(write(fd, "DEEP", 4), 4);
    expect_ok(close(fd));
    expect_text(W("moved/e/f"), "DEEP");
    expect_errno(rmdir(W("moved")), ENOTEMPTY);
    expect_errno(unlink(W("moved")), EISDIR);
    expect_errno(rmdir(W("moved/e/f")), ENOTDIR);
    expect_errno(mkdir(W("moved"), 0755), EEXIST);
    expect_ok(unlink(W("moved/e/f")));
    expect_ok(rmdir(W("moved/e")));
    expect_ok(rmdir(W("moved")));
}

static void links_are_links(void **state)
{
    char target[64] = "";

    (void)state;
    put_ok(W("f"), "x");
    expect_ok(symlink("f", W("s")));
    assert_int_equal(readlink(W("s"), target, sizeof(target)), 1);
    assert_string_equal(target, "f");
    assert_int_equal(stat_of(W("s")).st_size, 1);
    expect_text(W("s"), "x");
    expect_errno(symlink("f", W("s")), EEXIST);
    if (refused(link(W("f"), W("h")))) {
        return;
    }
    assert_int_equal(stat_of(W("f")).st_ino, stat_of(W("h")).st_ino);
    assert_int_equal(stat_of(W("f")).st_nlink, 2);
    put_ok(W("h"), "through h");
    expect_text(W("f"), "through h");
    expect_ok(unlink(W("f")));
    assert_int_equal(stat_of(W("h")).st_nlink, 1);
    expect_errno(link(W("h"), W("s")), EEXIST);
}

static void modes_are_kept(void **state)
{
    mode_t mode;

    (void)state;
    put_ok(W("f"), "x");
    for (mode = 0; mode <= 0777; mode += 0111) {
        expect_ok(chmod(W("f"), mode));
        assert_int_equal(stat_of(W("f")).st_mode & 07777, mode);
    }
    (void)umask(027);
    expect_ok(mkdir(W("d"), 0777));
    put_ok(W("d/g"), "x");
    (void)umask(022);
    assert_int_equal(stat_of(W("d")).st_mode & 07777, 0750);
    assert_int_equal(stat_of(W("d/g")).st_mode & 07777, 0640);
    if (!refused(chmod(W("d"), 02755))) {
        assert_int_equal(stat_of(W("d")).st_mode & 07777, 02755);
    }
    assert_int_equal(stat_of(W("f")).st_uid, geteuid());
    assert_int_equal(stat_of(W(".")).st_uid, geteuid());
    expect_ok(chown(W("f"), geteuid(), getegid()));
}

static void times_are_kept(void **state)
{
    const struct timespec times[2] = {{1000000000, 123456789},
                                      {1100000000, 987654321}};
    const struct timespec only_atime[2] = {{1200000000, 1}, {0, UTIME_OMIT}};
    struct stat st;
    int fd;

    (void)state;
    fd = open_ok(W("f"), O_CREAT | O_RDWR);
    assert_int_equal(write(fd, "x", 1), 1);
    expect_ok(futimens(fd, times));
    expect_ok(close(fd));
    st = stat_of(W("f"));
    assert_int_equal(st.st_atim.tv_sec, 1000000000);
    assert_int_equal(st.st_mtim.tv_sec, 1100000000);
    assert_int_equal(st.st_mtim.tv_nsec, 987654321);
    expect_ok(utimensat(AT_FDCWD, W("f"), only_atime, 0));
    st = stat_of(W("f"));
    assert_int_equal(st.st_atim.tv_sec, 1200000000);
    assert_int_equal(st.st_mtim.tv_sec, 1100000000);
    expect_text(W("f"), "x");
    assert_int_equal(stat_of(W("f")).st_mtim.tv_sec, 1100000000);
    put_ok(W("f"), "y");
    assert_true(stat_of(W("f")).st_mtim.tv_sec > 1200000000);
    expect_shell("cd workspace; touch -d 2001-02-03 f; cp -a f g; "
                 "date -r g +%F; touch -a f; date -r f +%F",
                 "2001-02-03\n2001-02-03\n");
}

static void unlinked_files_live_while_they_are_open(void **state)
{
    char text[8] = "";
    struct stat st;
    int fd;

    (void)state;
    put_ok(W("f"), "alive");
    fd = open_ok(W("f"), O_RDWR);
    expect_ok(unlink(W("f")));
    expect_shell("ls -A workspace", "");
    assert_int_equal(pread(fd, text, 5, 0), 5);
    assert_string_equal(text, "alive");
    assert_int_equal(pwrite(fd, "ALIVE", 5, 0), 5);
    expect_ok(fstat(fd, &st));
    assert_int_equal(st.st_size, 5);
    expect_ok(ftruncate(fd, 2));
    expect_ok(fstat(fd, &st));
    assert_int_equal(st.st_size, 2);
    expect_ok(close(fd));
}

static void nameless_files_work_or_say_so(void **state)
{
    int fd;

    (void)state;
    put_ok(W("x"), "");
    fd = open(W("."), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        assert_int_equal(errno, EOPNOTSUPP);
        return;
    }
    assert_int_equal(write(fd, "abc", 3), 3);
    expect_shell("ls -A workspace", "x\n");
    expect_ok(close(fd));
}

static void shared_maps_reach_the_file(void **state)
{
    char *map;
    int fd;

    (void)state;
    put_ok(W("f"), "0123456789");
    fd = open_ok(W("f"), O_RDWR);
    map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_memory_equal(map, "0123456789", 10);
    map[3] = 'x';
    expect_ok(msync(map, 10, MS_SYNC));
    expect_ok(munmap(map, 10));
    expect_ok(close(fd));
    expect_text(W("f"), "012x456789");
    expect_shell("in_cat f", "012x456789");
}

static void space_is_allocated_and_holes_are_found(void **state)
{
    int fd = open_ok(W("f"), O_CREAT | O_RDWR);

    (void)state;
    if (!refused(fallocate(fd, 0, 0, 8192))) {
        assert_int_equal(stat_of(W("f")).st_size, 8192);
        expect_ok(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 16384));
        assert_int_equal(stat_of(W("f")).st_size, 8192);
    }
    expect_ok(ftruncate(fd, 1 << 24));
    assert_int_equal(pwrite(fd, "data", 4, 1 << 22), 4);
    assert_int_equal(lseek(fd, 0, SEEK_END), 1 << 24);
    if (mnt_local()) {
        assert_int_equal(lseek(fd, 65536, SEEK_DATA), 1 << 22);
        assert_true(lseek(fd, 1 << 22, SEEK_HOLE) < 1 << 24);
        expect_ok(fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
                            1 << 22, 4096));
        expect_shell("tr -d '\\0' < workspace/f | wc -c", "0\n");
    } else {
        expect_shell("tr -d '\\0' < workspace/f", "data");
    }
    expect_ok(close(fd));
}

static void attributes_are_kept_or_refused(void **state)
{
    char value[16] = "";

    (void)state;
    put_ok(W("f"), "x");
    if (refused(setxattr(W("f"), "user.name", "v", 1, 0))) {
        return;
    }
    assert_int_equal(getxattr(W("f"), "user.name", value, 16), 1);
    assert_int_equal(listxattr(W("f"), value, 16), 10);
    assert_string_equal(value, "user.name");
    expect_errno(setxattr(W("f"), "user.name", "v", 1, XATTR_CREATE), EEXIST);
    expect_ok(removexattr(W("f"), "user.name"));
    expect_errno(getxattr(W("f"), "user.name", value, 16), ENODATA);
    expect_errno(setxattr(W("f"), "trusted.x", "v", 1, 0), EPERM);
}

static void names_are_bytes(void **state)
{
    static const char *const names[] = {
        "a b",  "new\nline", "\x01\x7f", "\xff\xfe", "-rf", "~",
        "a\\b", "\"quote'",  "*?[",      "...",      " ",   "\xe2\x82\xac",
    };
    char longest[257];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(names); i++) {
        put_ok(in("workspace/%s", names[i]), names[i]);
        expect_text(in("workspace/%s", names[i]), names[i]);
    }
    memset(longest, 'n', sizeof(longest));
    longest[256] = '\0';
    expect_errno(open(in("workspace/%s", longest), O_CREAT | O_RDWR, 0600),
                 ENAMETOOLONG);
    longest[255] = '\0';
    put_ok(in("workspace/%s", longest), "long");
    expect_shell("find workspace -type f -print0 | tr -dc '\\0' | wc -c; "
                 "find workspace -mindepth 1 -delete; ls -A workspace",
                 "13\n");
}

static unsigned list(const char *path, bool compare)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            n++;
        }
        if (compare && entry->d_name[0] != '.') {
            struct stat st;

            expect_ok(
                fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW));
            assert_int_equal(st.st_ino, entry->d_ino);
        }
    }
    (void)closedir(dir);
    return n;
}

static void ten_thousand_entries_list_once_each(void **state)
{
    /* mem looks at each name in turn, and scripts make one in 30 ms. */
    unsigned count = mnt_local() ? 10000 : mnt_scripts() ? 200 : 2000;
    char script[256];
    char want[32];

    (void)state;
    (void)snprintf(script, sizeof(script),
                   "mkdir workspace/d; cd workspace/d; seq %u | xargs touch; "
                   "find . -type f | sort -u | wc -l",
                   count);
    (void)snprintf(want, sizeof(want), "%u\n", count);
    expect_shell(script, want);
    assert_int_equal(list(W("d"), true), count);
    assert_int_equal(list(W("d"), false), count);
    expect_shell("rm -r workspace/d; ls workspace", "");
}

static void eight_appenders_lose_nothing(void **state)
{
    (void)state;
    /* Each line costs `jsonl` a command. */
    (void)setenv("EACH", mnt_scripts() ? "20" : "200", 1);
    expect_shell("cd workspace; for j in 1 2 3 4 5 6 7 8; do\n"
                 "( for i in $(seq $EACH); do echo $j$i$j >> log; done ) &\n"
                 "done; wait; [ $(sort -u log | wc -l) = $((8 * EACH)) ] && "
                 "echo all; grep -vE '^([1-8])[0-9]+\\1$' log; true",
                 "all\n");
}

static void locks_hold_between_processes(void **state)
{
    (void)state;
    expect_shell("cd workspace; : > l; exec 9<l; flock -x 9\n"
                 "flock -n l true || echo held; flock -u 9; "
                 "flock -n l echo free\n"
                 "python3 -c '\n"
                 "import fcntl, os\n"
                 "f = open(\"l\", \"r+\"); fcntl.lockf(f, fcntl.LOCK_EX)\n"
                 "if os.fork() == 0:\n"
                 "    g = open(\"l\", \"r+\")\n"
                 "    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                 "    except OSError: print(\"refused\", flush=True)\n"
                 "    os._exit(0)\n"
                 "os.wait()'\n",
                 "held\nfree\nrefused\n");
}

static void special_files_are_pipes_and_sockets_only(void **state)
{
    (void)state;
    put_ok(W("x"), "");
    expect_errno(mknod(W("dev"), S_IFCHR | 0600, 0x0103), EPERM);
    expect_errno(mknod(W("dev"), S_IFBLK | 0600, 0x0103), EPERM);
    if (!refused(mkfifo(W("p"), 0600))) {
        assert_true(S_ISFIFO(stat_of(W("p")).st_mode));
        expect_shell("cd workspace; cat p & echo through > p; wait",
                     "through\n");
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(files_are_written_read_and_cut),
    e2e_test(exclusive_creation_has_one_winner),
    e2e_test(rename_does_what_its_flags_say),
    e2e_test(directories_move_with_their_children),
    e2e_test(links_are_links),
    e2e_test(modes_are_kept),
    e2e_test(times_are_kept),
    e2e_test(unlinked_files_live_while_they_are_open),
    e2e_test(nameless_files_work_or_say_so),
    e2e_test(shared_maps_reach_the_file),
    e2e_test(space_is_allocated_and_holes_are_found),
    e2e_test(attributes_are_kept_or_refused),
    e2e_test(names_are_bytes),
    e2e_test(ten_thousand_entries_list_once_each),
    e2e_test(eight_appenders_lose_nothing),
    e2e_test(locks_hold_between_processes),
    e2e_test(special_files_are_pipes_and_sockets_only),
};

E2E_MAIN(tests)
