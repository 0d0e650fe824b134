/*
 * Checkpoints: a tree after each command, to be looked at, compared, gone back
 * to and forked from.
 */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SEEDS = 3
};

/* Takes times out of checkpoints.log. */
#define LOG "cut -d' ' -f1,3,4 checkpoints.log\n"

static const struct script looked_at[] = {
    {"one is taken after each command, whatever its exit code",
     "in_write f one; echo nonsense > exec; cat execs/2/status\n"
     "test \"$(cat execs/2/exit_code)\" != 0 && echo failed\n"
     "ls checkpoints; cat checkpoints/1/f\n" LOG,
     "exited\nfailed\n1\n2\none\n1 exec:1 1\n2 exec:2 0\n"},
    {"what is written through the mount makes one before the next command",
     "in_write f one; echo two > workspace/g; in_write h three\n" LOG
     "cat execs/2/changes changes/2 changes/1..3\n"
     "ls checkpoints/1 checkpoints/3\n",
     "1 exec:1 1\n2 write 1\n3 exec:2 1\n"
     "A\th\nA\tg\nA\tg\nA\th\n"
     "checkpoints/1:\nf\n\ncheckpoints/3:\nf\ng\nh\n"},
    {"what is written is taken when it has been quiet for two seconds",
     "in_write f one; echo two > workspace/g; sleep 1.5; t=$(date +%s%N)\n"
     "echo 3 > workspace/g\n"
     /* One more where somebody had the processor for half a second. */
     "until [ \"$(cat $(ls -dv checkpoints/* | tail -n 1)/g)\" = 3 ]; do\n"
     "sleep 0.1; done 2>/dev/null; cut -d' ' -f3,4 checkpoints.log | uniq\n"
     "c=$(date -d $(tail -n 1 checkpoints.log | cut -d' ' -f2) +%s%N)\n"
     "[ $((c - t)) -ge 2000000000 ] && [ $((c - t)) -lt 10000000000 ] && "
     "echo quiet\n",
     "exec:1 1\nwrite 1\nquiet\n"},
    {"a config can say that nothing is gathered",
     "echo absent > status\n"
     "sed -i 's/\"gathered\"/\"never\"/' config.json 2>/dev/null ||\n"
     "  { sed 's/\"gathered\"/\"never\"/' config.json > $T/c\n"
     "    cat $T/c > config.json; }\n"
     "in_write f one; echo two > workspace/g; in_write h three\n" LOG
     "cat execs/2/changes\n",
     "1 exec:1 1\n2 exec:2 2\nA\tg\nA\th\n"},
    {"tools see a tree with true metadata",
     "mkdir workspace/d; echo data > workspace/d/f\n"
     "chmod 640 workspace/d/f; chmod 2751 workspace/d\n"
     "ln -s d/f workspace/link; echo x > workspace/empty; : > workspace/empty\n"
     "printf 'a\\0b' > workspace/bin; touch -d @1000000000 workspace/bin\n"
     "touch -hd @1100000000 workspace/link\n"
     "touch -d @1200000000.5 workspace/d\n"
     "mkdir checkpoints/it && cp -a checkpoints/it $T/copy\n"
     "diff -r checkpoints/it workspace && diff -r $T/copy workspace && echo "
     "ok\n"
     "look() { (cd $1; stat -c '%n %s %a %F %Y %u' d/f bin link empty\n"
     " stat -c '%n %a %.9Y' d .; readlink link; find . | sort); }\n"
     "look workspace > $T/a; look checkpoints/it > $T/b; cmp $T/a $T/b &&\n"
     " grep -c . $T/b; grep '^d ' $T/b\n"
     "tar -C checkpoints/it -c . | tar -t | sort | tr '\\n' ' '; echo\n"
     "cd checkpoints && grep -r data\n",
     "ok\n13\nd 2751 1200000000.500000000\n"
     "./ ./bin ./d/ ./d/f ./empty ./link \nit/d/f:data\n"},
    {"nothing in it can be changed, and nobody removes it by mistake",
     "mkdir workspace/d; echo f > workspace/d/f; mkdir checkpoints/it\n"
     "cd checkpoints/it\n"
     "for c in 'touch d/f' 'touch new' 'mkdir new' 'rm -f d/f' 'rmdir d'\\\n"
     " 'mv d e' 'ln d/f g' 'ln -s a b' 'chmod 1 d/f' 'truncate -s 1 d/f'\\\n"
     " 'mkfifo p' 'dd of=d/f if=/dev/null conv=notrunc' 'mv d/f "
     "../../workspace/'"
     "; do LC_ALL=C $c > $T/say 2>&1 && echo $c\n"
     " grep -q 'Read-only file' $T/say || { echo $c; cat $T/say; }\n"
     "done; python3 - <<'END'\n"
     "import os\n"
     "for f in (lambda: os.setxattr('d/f', 'user.a', b'1'),\n"
     "          lambda: os.utime('d/f', (1, 1)),\n"
     "          lambda: os.rename('d/f', '../../workspace/x'),\n"
     "          lambda: os.open('d/f', os.O_RDONLY | os.O_TRUNC)):\n"
     "    try: f(); print('done')\n"
     "    except OSError as e: print(e.errno)\n"
     "END\n"
     "cd ../..; rmdir checkpoints/it 2>&1 | grep -o 'Operation not perm.*'\n"
     "tail -n 1 error | cut -d ' ' -f 2-3,5-; cat changes/none 2>/dev/null\n"
     "tail -n 1 error | cut -d ' ' -f 2-3,5-\n"
     "rm -rf checkpoints 2> /dev/null; find checkpoints -delete 2> /dev/null\n"
     "cat checkpoints/it/d/f\n",
     "30\n30\n18\n30\nOperation not permitted\n"
     "rmdir \"it\" EPERM echo drop it > checkpoints.log removes it\n"
     "lookup \"none\" ENOENT no such checkpoint: 'none'\nf\n"},
    {"inode numbers are a file's own, and stay",
     "in_write f one; in_write g two\n"
     "stat -c %i workspace/f checkpoints/1/f checkpoints/2/f checkpoints/1 \\\n"
     " checkpoints/2 checkpoints workspace > $T/a; sort -u $T/a | wc -l\n"
     "for i in 1 2 3 4 5 6 7 8 9; do in_write g $i; ls -R checkpoints >$T/x\n"
     "done\n"
     "stat -c %i workspace/f checkpoints/1/f checkpoints/2/f checkpoints/1 \\\n"
     " checkpoints/2 checkpoints workspace | cmp - $T/a && echo same\n"
     "python3 -c 'import os\n"
     "for e in os.scandir(\"checkpoints/1\"):\n"
     "    print(e.inode() == os.stat(e.path).st_ino)'\n",
     "7\nsame\nTrue\n"},
};

static const struct script named[] = {
    {"one that is named is listed by its name alone",
     "in_write f one; mkdir checkpoints/good; in_write f two\n"
     "ls checkpoints; cat checkpoints/good/f; ls checkpoints/2 2>&1 |\n"
     "grep -o 'No such file.*'\n" LOG "cat changes/good..3\n",
     "1\n3\ngood\none\nNo such file or directory\n"
     "1 exec:1 1\ngood named 0\n3 exec:2 1\nM\tf\n"},
    {"what is no name is refused, and a name is taken once",
     "in_write f one\n"
     "for n in 12 last .a a..b 'a b' -x; do\n"
     "  mkdir -- \"checkpoints/$n\" 2>&1 | grep -o 'Invalid arg.*'\n"
     "done; mkdir checkpoints/it\n"
     "mkdir checkpoints/it 2>&1 | grep -o 'File exists'\n"
     "mkdir checkpoints/1 2>&1 | grep -o 'File exists'; ls checkpoints\n",
     "Invalid argument\nInvalid argument\nInvalid argument\n"
     "Invalid argument\nInvalid argument\nInvalid argument\n"
     "File exists\nFile exists\n1\nit\n"},
    {"one is dropped by its name, and what others show of it stays",
     "in_write f one; mkdir checkpoints/good; in_write f two; in_write g 3\n"
     "echo 'drop good' > checkpoints.log; echo 'drop 3' > checkpoints.log\n"
     "ls checkpoints; cat execs/2/changes execs/3/changes changes/4\n"
     "echo 'drop 4' > checkpoints.log; ls checkpoints; in_write g 4\n"
     "cat execs/3/changes execs/4/changes changes/5\n"
     "echo 'drop 5' > checkpoints.log; cat changes/5 2>&1 |\n"
     "grep -o 'No such.*'; in_write f 5; cat execs/5/changes; ls checkpoints\n",
     "1\n4\nM\tf\nA\tg\nA\tg\n1\nA\tg\nM\tg\nM\tg\n"
     "No such file or directory\nM\tf\n1\n6\n"},
    {"one is dropped also where what changed since is more than a file shows",
     "in_write f one; mkdir checkpoints/good; (cd workspace; python3 - "
     "<<'END'\n"
     "import os\n"
     "for i in range(15):\n"
     "    os.mkdir(b'\\xff' * 250); os.chdir(b'\\xff' * 250)\n"
     "for i in range(1200): open(str(i), 'w').close()\n"
     "END\n"
     "); mkdir checkpoints/many; cat changes/many 2>&1 | grep -o 'File too.*'\n"
     "echo 'drop good' > checkpoints.log; ls checkpoints\n",
     "File too large\n1\nmany\n"},
    {"what is written to checkpoints.log is drop and a name",
     "in_write f one\n"
     "for w in drop 'drop a b' 'keep 1' 1; do\n"
     "  { echo $w > checkpoints.log; } 2>&1 | grep -o 'Invalid arg.*'\n"
     "done; { echo drop 7 > checkpoints.log; } 2>&1 | grep -o 'No such.*'\n"
     "grep -c \"no such checkpoint: '7'\" error; ls checkpoints\n",
     "Invalid argument\nInvalid argument\nInvalid argument\n"
     "Invalid argument\nNo such file or directory\n1\n1\n"},
    {"as many stay as the config says, and those with a name",
     "echo absent > status\n"
     "sed 's/\"checkpoints_keep\": 1000/\"checkpoints_keep\": 3/' config.json "
     "\\\n"
     " > $T/c; cat $T/c > config.json\n"
     "in_write f 1; mkdir checkpoints/it; for i in 2 3 4 5 6 7; do\n"
     " in_append f $i; done\n"
     "for i in 1 2 3 4 5 6 7 8 9; do ls checkpoints > $T/l\n"
     " [ $(wc -l < $T/l) = 4 ] && break; sleep 0.2; done; cat $T/l\n"
     "cat execs/[0-9]*/changes; cat checkpoints/it/f\n",
     "6\n7\n8\nit\nA\tf\nM\tf\nM\tf\nM\tf\nM\tf\nM\tf\nM\tf\n1\n"},
    {"all go with the sandbox, and numbers are never used twice",
     "in_write f one; mkdir checkpoints/it; echo absent > status\n"
     "ls checkpoints; cat checkpoints.log; in_write f two; ls checkpoints\n",
     "3\n"},
    {"the changes of a command that nobody read go with the sandbox",
     "in_write f one; in_write f two; cat execs/1/changes\n"
     "echo absent > status; ls -d execs/*/changes; cat execs/*/changes\n"
     "in_write g one; ls -d execs/*/changes; cat execs/3/changes\n",
     "A\tf\nexecs/1/changes\nA\tf\n"
     "execs/1/changes\nexecs/3/changes\nexecs/last/changes\nA\tg\n"},
};

static const struct script gone_back_to[] = {
    {"a restore gives that tree, and can be undone",
     "mkdir workspace/d; echo a > workspace/d/a; ln workspace/d/a workspace/b\n"
     "chmod 751 workspace/d; touch -d @1000000000 workspace/d/a\n"
     "mkdir checkpoints/it; cp -a workspace $T/was\n"
     "rm -r workspace/d; echo new > workspace/b; echo c > workspace/c\n"
     "echo it > restore; diff -r workspace $T/was && echo same\n"
     "stat -c ' %a %Y %h' workspace/b; stat -c ' %a' workspace/d\n"
     "cut -d' ' -f1,3,4 checkpoints.log\n"
     "cat changes/it..2; echo 2 > restore; ls workspace; cat workspace/b\n",
     "same\n 644 1000000000 2\n 751\n"
     "it named 3\n2 restore 3\n"
     "M\tb\nA\tc\nD\td\nb\nc\nnew\n"},
    {"changes after a restore are against what was restored",
     "in_write f one; in_write g two; echo 1 > restore; in_write h three\n"
     "ls workspace; cat execs/3/changes; cat changes/2..4; echo 2 > restore\n"
     "ls workspace\n" LOG,
     "f\nh\nA\th\nD\tg\nA\th\nf\ng\n"
     "1 exec:1 1\n2 exec:2 1\n3 restore 0\n4 exec:3 1\n5 restore 0\n"},
    {"what is not there cannot be restored",
     "in_write f one; for w in 7 nothing 'a b'; do\n"
     "{ echo $w > restore; } 2>&1 | grep -o 'No such.*\\|Invalid.*'\n"
     "done; cat workspace/f; ls checkpoints\n",
     "No such file or directory\nNo such file or directory\n"
     "Invalid argument\none\n1\n"},
    {"the events tell",
     "in_write f one; mkdir checkpoints/it; echo it > restore\n"
     "echo 'drop it' > checkpoints.log\n"
     "python3 -c 'import json\n"
     "for l in open(\"events\"):\n"
     "    e = json.loads(l)\n"
     "    if e[\"event\"].startswith(\"checkpoint.\"):\n"
     "        print(e[\"event\"], e[\"detail\"][\"checkpoint\"])'\n",
     "checkpoint.taken it\ncheckpoint.taken 3\ncheckpoint.restored it\n"
     "checkpoint.dropped it\n"},
};

static const struct script forked[] = {
    {"a fork starts from a checkpoint, and is independent",
     "in_write f one; in_write f two; F=${PWD##*/}-f\n"
     "echo \"$F 1\" > fork; cat ../$F/status; cat ../$F/workspace/f\n"
     "cut -d' ' -f1,3 ../$F/checkpoints.log; (cd ../$F; in_write f three\n"
     "cat execs/1/changes; echo 1 > restore; cat workspace/f)\n"
     "cat workspace/f; cmp config.json ../$F/config.json && echo same\n",
     "paused\none\n1 fork\nM\tf\none\ntwo\nsame\n"},
    {"forks of forks outlive their parents",
     "in_write f one; F=${PWD##*/}; echo $F-a > fork\n"
     "(cd ../$F-a; in_write g two; echo $F-b > fork; echo absent > status)\n"
     "rmdir ../$F-a; (cd ../$F-b; cat workspace/f workspace/g; in_write h 3\n"
     "ls workspace checkpoints/2; cat changes/1..2)\n"
     "grep -o 'forked_from.*a\"' ../$F-b/events | wc -l\n",
     "one\ntwo\ncheckpoints/2:\nf\ng\nh\n\nworkspace:\nf\ng\nh\nA\th\n1\n"},
    {"an id that is taken is refused, and one that fails is free again",
     "in_write f one; F=${PWD##*/}\n"
     "{ echo $F > fork; } 2>&1 | grep -o 'File exists'\n"
     "{ echo $F-n 9 > fork; } 2>&1 | grep -o 'No such.*'\n"
     "for w in '' 'a b c' ../x; do { echo \"$w\" > fork; } 2>&1 |\n"
     "grep -o 'Invalid.*'; done; ls -d ../$F* | wc -l; mkdir ../$F-n\n"
     "ls -d ../$F* | wc -l\n",
     "File exists\nNo such file or directory\nInvalid argument\n"
     "Invalid argument\nInvalid argument\n1\n2\n"},
    {"a session without a sandbox forks to another one",
     "F=${PWD##*/}-e; echo $F > fork; cat ../$F/status; ls ../$F/checkpoints\n"
     "rmdir ../$F && echo gone\n",
     "absent\ngone\n"},
    {"twenty forks at once are twenty attempts",
     "in_write f one; F=${PWD##*/}; for i in $(seq 20); do\n"
     "(echo $F-$i 1 > fork; cd ../$F-$i; in_append f $i) &\n"
     "done; wait; for i in $(seq 20); do\n"
     "printf 'one\\n%d\\n' $i | cmp - ../$F-$i/workspace/f || echo bad $i\n"
     "echo absent > ../$F-$i/status; rmdir ../$F-$i; done; cat workspace/f\n",
     "one\n"},
};

/* So much that it becomes the checkpoint without being copied. */
#define INSTALL                                                                \
    "echo 'cd pkg; i=0; while [ $i -lt 2500 ]; do echo $i > g$i; i=$((i+1))\n" \
    "done' > exec\n"

static const struct script installed[] = {
    {"who is in a directory stays there",
     "echo 'mkdir -p pkg/sub; echo t > /tmp/t; echo f > pkg/sub/f' > exec\n"
     "ls -lR workspace > $T/list\n"
     "(cd workspace/pkg/sub; until [ -e $T/go ]; do sleep 0.05; done\n"
     " cat f ../g7; echo h > host; echo more >> f; ls) > $T/shell 2>&1 "
     "&\n" INSTALL "touch $T/go; wait; cat $T/shell workspace/pkg/g7\n"
     "echo 'cat /tmp/t pkg/sub/f pkg/sub/host' > exec; cat execs/3/stdout\n"
     "echo new > workspace/pkg/g7; cat workspace/pkg/g7 checkpoints/2/pkg/g7\n"
     "echo 'cat pkg/g7' > exec; cat execs/4/stdout\n" LOG,
     "f\n7\nf\nhost\n7\nt\nf\nmore\nh\nnew\n7\nnew\n"
     "1 exec:1 3\n2 exec:2 2500\n3 write 2\n4 exec:3 0\n5 write 1\n"
     "6 exec:4 0\n"},
    {"who has a file open goes on with it",
     "echo 'mkdir pkg; echo r > pkg/r' > exec; exec 3< workspace/pkg/r\n"
     "exec 4>> workspace/pkg/w; echo early >&4\n" INSTALL
     "echo late >&4; cat <&3; cat workspace/pkg/w; echo 'cat pkg/w' > exec\n"
     "cat execs/3/stdout checkpoints/3/pkg/w; exec 3<&- 4>&-\n"
     "echo 'echo r2 > pkg/r' > exec; cat workspace/pkg/r\n"
     "cat checkpoints/3/pkg/r\n",
     "r\nearly\nlate\nearly\nlate\nearly\nr2\nr\n"},
    {"what was read and written before is written again where it is now",
     "echo 'mkdir pkg; echo a > pkg/a' > exec; cat workspace/pkg/a\n"
     "echo b >> workspace/pkg/a\n" INSTALL
     "echo c >> workspace/pkg/a; cat workspace/pkg/a checkpoints/3/pkg/a\n"
     "echo 'cat pkg/a; echo d >> pkg/a' > exec; cat execs/3/stdout\n"
     "cat workspace/pkg/a; mv workspace/pkg workspace/moved\n"
     "ls workspace/moved | wc -l; rm -r workspace/moved; ls workspace\n"
     "ls checkpoints/3/pkg | wc -l\n",
     "a\na\nb\nc\na\nb\na\nb\nc\na\nb\nc\nd\n2501\n2501\n"},
};

/* Of one session each, all in one test. */
#define SCRIPTS_TEST(rows)                                                     \
    static void rows##_as_told(void **state)                                   \
    {                                                                          \
        (void)state;                                                           \
        expect_scripts(rows, ARRAY_SIZE(rows));                                \
    }

SCRIPTS_TEST(looked_at)
SCRIPTS_TEST(named)
SCRIPTS_TEST(gone_back_to)
SCRIPTS_TEST(forked)
SCRIPTS_TEST(installed)

/* ---- Open handles ---- */

static int open_in(const char *path, int flags)
{
    int fd = open(in("%s", path), flags | O_CLOEXEC, 0644);

    if (fd < 0) {
        fail_msg("%s: %s", path, strerror(errno));
    }
    return fd;
}

/* What a handle from before a restore gives: the old bytes, or ESTALE. */
static void expect_old(int fd, const char *old)
{
    char got[64] = "";
    ssize_t n = pread(fd, got, sizeof(got) - 1, 0);

    if (n < 0) {
        assert_int_equal(errno, ESTALE);
    } else {
        got[n] = '\0';
        assert_string_equal(got, old);
    }
}

static void an_open_handle_never_shows_what_was_restored(void **state)
{
    int fd, dir, writes;
    struct stat st;

    (void)state;
    put_ok(in("workspace/f"), "first\n");
    expect_ok(mkdir(in("workspace/d"), 0755));
    put_ok(in("workspace/d/x"), "x");
    expect_ok(mkdir(in("checkpoints/it"), 0755));
    put_ok(in("workspace/f"), "second\n");
    fd = open_in("workspace/f", O_RDONLY);
    writes = open_in("workspace/f", O_WRONLY);
    dir = open_in("workspace/d", O_RDONLY | O_DIRECTORY);
    expect_old(fd, "second\n");
    put_ok(in("restore"), "it");
    expect_old(fd, "second\n");
    expect_text(in("workspace/f"), "first\n");
    /* What is written there is in the workspace no more. */
    (void)!pwrite(writes, "THIRD\n", 6, 0);
    (void)close(writes);
    expect_text(in("workspace/f"), "first\n");
    assert_int_equal(openat(dir, "new", O_CREAT | O_WRONLY | O_CLOEXEC, 0644),
                     -1);
    expect_errno(stat(in("workspace/d/new"), &st), ENOENT);
    expect_text(in("workspace/d/x"), "x");
    (void)close(dir);
    (void)close(fd);
}

static void a_mapping_of_a_checkpoint_reads_it(void **state)
{
    char *map;
    int fd;

    (void)state;
    put_ok(in("workspace/f"), "mapped");
    expect_ok(mkdir(in("checkpoints/it"), 0755));
    put_ok(in("workspace/f"), "other!");
    fd = open_in("checkpoints/it/f", O_RDONLY);
    map = mmap(NULL, 6, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_memory_equal(map, "mapped", 6);
    (void)munmap(map, 6);
    (void)close(fd);
}

static void install(void)
{
    (void)put(in("exec"), "mkdir -p pkg; cd pkg; i=0; while [ $i -lt 2500 ]; "
                          "do echo $i > g$i; i=$((i+1)); done");
}

/* Not opened by the kernel's memory of where it was. */
static void what_is_held_is_opened_where_it_is_now(void **state)
{
    char place[64];
    int held;

    (void)state;
    put_ok(in("exec"), "mkdir pkg; echo a > pkg/a");
    expect_text(in("workspace/pkg/a"), "a\n");
    held = open_in("workspace/pkg/a", O_PATH);
    install();
    (void)snprintf(place, sizeof(place), "/proc/self/fd/%d", held);
    put_ok(place, "other\n");
    expect_text(in("workspace/pkg/a"), "other\n");
    expect_text(in("checkpoints/2/pkg/a"), "a\n");
    expect_shell("echo 'cat pkg/a' > exec; cat execs/3/stdout", "other\n");
    (void)close(held);
}

/* ---- Over restarts ---- */

/* It is as it was, also for a sandbox that was to see another mount. */
static void crash_while_much_is_taken(const char *point)
{
    mnt_stop();
    expect_ok(setenv("SESSIONFS_CRASH", point, 1));
    mnt_start();
    expect_ok(unsetenv("SESSIONFS_CRASH"));
    put_ok(in("exec"), "mkdir pkg; echo a > pkg/a");
    install();
    mnt_kill();
    mnt_start();
    expect_shell("ls workspace/pkg | wc -l\n"
                 "echo 'ls pkg | wc -l; echo b > pkg/a; rm pkg/g1' > exec\n"
                 "cat execs/3/stdout workspace/pkg/a checkpoints/1/pkg/a\n"
                 "ls workspace/pkg | wc -l\n"
                 "cd checkpoints; diff -r ../workspace $(ls | sort -n | "
                 "tail -1) && echo same\n",
                 "2501\n2501\nb\na\n2500\nsame\n");
}

static void a_crash_while_much_is_taken(void **state)
{
    static const char *const points[] = {"local-seal-marked",
                                         "local-seal-taken", "local-seal-moved",
                                         "local-seal-noted"};

    for (size_t i = 0; i < ARRAY_SIZE(points); i++) {
        (void)e2e_setup(state);
        crash_while_much_is_taken(points[i]);
    }
}

static void after_a_restart_all_is_there(void **state)
{
    (void)state;
    expect_shell("in_write f one; mkdir checkpoints/it; in_write f two\n", "");
    mnt_kill();
    mnt_start();
    expect_shell("ls checkpoints; cat checkpoints/*/f\n",
                 "1\n3\nit\none\ntwo\none\n");
    /* What was written unseen would have been taken before the command. */
    expect_shell("in_write g three; wc -l < checkpoints.log; ls workspace\n"
                 "cat changes/last; echo it > restore; cat workspace/f\n",
                 "4\nf\ng\nA\tg\none\n");
}

static void what_was_written_is_taken_at_the_end(void **state)
{
    static const char *const ends[] = {"", ",on_unmount=keep"};
    const char *options = mnt.options;
    char want[64];

    (void)state;
    put_ok(in("status"), "running");
    for (unsigned i = 0; i < ARRAY_SIZE(ends); i++) {
        mnt_stop();
        mnt.options = ends[i];
        mnt_start();
        put_ok(in("status"), "running");
        (void)snprintf(want, sizeof(want), "%u\n", i);
        put_ok(in("workspace/f"), want);
        mnt_stop();
        mnt_start();
        expect_text(in(i ? "checkpoints/2/f" : "checkpoints/1/f"), want);
    }
    mnt_stop();
    mnt.options = options;
    mnt_start();
}

/* Of a seed that it tells where that goes wrong. */
static void changes_and_restores_are_exact(void **state)
{
    char command[3 * MNT_PATH_SIZE];

    for (int i = 0; i < SEEDS; i++) {
        (void)e2e_setup(state);
        (void)snprintf(command, sizeof(command), "python3 -B %s %s %u",
                       SESSIONFS_RANDOM_PY, mnt.session,
                       (unsigned)clock_wall_us());
        assert_int_equal(system(command), 0);
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(looked_at_as_told),
    e2e_test(named_as_told),
    e2e_test(gone_back_to_as_told),
    e2e_test(forked_as_told),
    e2e_test(an_open_handle_never_shows_what_was_restored),
    e2e_test(a_mapping_of_a_checkpoint_reads_it),
    e2e_test(after_a_restart_all_is_there),
    e2e_test(what_was_written_is_taken_at_the_end),
    e2e_test_of("local", installed_as_told),
    e2e_test_of("local", what_is_held_is_opened_where_it_is_now),
    e2e_test_of("local", a_crash_while_much_is_taken),
    e2e_test_of("local", changes_and_restores_are_exact),
};

E2E_MAIN(tests)
