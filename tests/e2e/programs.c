/* Programs that people use, on a workspace. */
#include "tests/e2e/tools.h"

static const struct script editors[] = {
    {"sed -i",
     "cd workspace; printf 'a\\nb\\n' > f; chmod 640 f; sed -i s/a/x/ f; "
     "cat f; stat -c %a f; ls",
     "x\nb\n640\nf\n"},
    {"vim",
     "cd workspace; printf 'a\\nb\\n' > f; "
     "vim.tiny -Nes -u NONE -c '%s/b/y/' -c wq f </dev/null; cat f; ls -A",
     "a\ny\nf\n"},
    {"patch",
     "cd workspace; printf 'a\\nb\\n' > f; sed s/b/c/ f > $T/new; "
     "diff -u f $T/new > $T/p; patch -s f $T/p; cat f",
     "a\nc\n"},
    {"python writing a new file over an old one",
     "cd workspace; echo old > f; python3 -c '\n"
     "import os, tempfile\n"
     "fd, n = tempfile.mkstemp(dir=\".\")\n"
     "os.write(fd, b\"new\\n\"); os.fsync(fd); os.close(fd)\n"
     "os.replace(n, \"f\")'; cat f; ls -A",
     "new\nf\n"},
    {"dd without truncation",
     "cd workspace; printf 0123456789 > f; printf ab | dd of=f bs=1 seek=4 "
     "conv=notrunc 2>/dev/null; cat f",
     "0123ab6789"},
    {"install, ln, mv, cp -a",
     "cd workspace; echo x > f; install -m 700 f g; ln -s g l; mv f h; "
     "cp -a . $T/all; diff -r . $T/all; cd $T/all; stat -c '%a %F %N' *",
     "700 regular file 'g'\n644 regular file 'h'\n"
     "777 symbolic link 'l' -> 'g'\n"},
};

static void editors_work(void **state)
{
    (void)state;
    expect_scripts(editors, ARRAY_SIZE(editors));
}

static void tar_unpacks_and_packs_the_same(void **state)
{
    (void)state;
    expect_shell("mkdir $T/src; cd $T/src; for i in $(seq 100); do "
                 "mkdir -p d$((i % 10)); head -c $((i * 97)) /dev/zero | "
                 "tr '\\0' x > d$((i % 10))/f$i; done; ln -s f10 d0/l\n"
                 "chmod 600 d1/f1; touch -d 2001-01-01 d2/f2\n"
                 "tar cf $T/a.tar .; cd $S/workspace; tar xf $T/a.tar; "
                 "diff -r . $T/src; tar df $T/a.tar 2>&1 | grep -v 'Mod time';"
                 "tar cf $T/b.tar .; mkdir $T/b; tar xf $T/b.tar -C $T/b; "
                 "diff -r $T/b $T/src; stat -c '%a %y' d1/f1 d2/f2 | cut -c1-14"
                 " | tail -1; find . | wc -l",
                 "644 2001-01-01\n112\n");
}

static void git_keeps_a_repository(void **state)
{
    (void)state;
    expect_shell("cd workspace; git init -q -b main . || exit\n"
                 "git config user.email a@b; git config user.name n\n"
                 "for i in $(seq 60); do mkdir -p d$((i % 7)); "
                 "echo $i > d$((i % 7))/f$i; done\n"
                 "git add . && git commit -qm one && git status --porcelain\n"
                 "echo changed >> d1/f1; git mv d2/f2 moved; git rm -q d3/f3\n"
                 "git status --porcelain | sort; git commit -qam two\n"
                 "git fsck --strict 2>&1; git gc -q; git fsck 2>&1\n"
                 "git clone -q . $T/clone && git -C $T/clone log --format=%s\n"
                 "git checkout -q HEAD~1; cat d1/f1; git checkout -q main; "
                 "git stash list; git status --porcelain",
                 " M d1/f1\nD  d3/f3\nR  d2/f2 -> moved\ntwo\none\n1\n");
}

static void git_inside_and_outside_agree(void **state)
{
    (void)state;
    expect_shell("cd workspace; git init -q -b main .; echo x > f; git add f\n"
                 "git -c user.email=a@b -c user.name=n commit -qm one\n"
                 "cat > ../exec <<'END'\n"
                 "git status --porcelain 2>&1; echo in >> f; git add f\n"
                 "git -c user.email=a@b -c user.name=n commit -qm two 2>&1\n"
                 "END\n"
                 "cat ../exec; git status --porcelain; git log --format=%s; "
                 "git fsck 2>&1",
                 "two\none\n");
}

static void sqlite_works_in_both_journal_modes(void **state)
{
    (void)state;
    expect_shell(
        "cd workspace; python3 - <<'END'\n"
        "import sqlite3\n"
        "for mode in ('delete', 'truncate', 'wal'):\n"
        "    a = sqlite3.connect(mode + '.db', timeout=10)\n"
        "    print(a.execute('pragma journal_mode=' + mode).fetchone()[0])\n"
        "    a.execute('create table t (x)')\n"
        "    b = sqlite3.connect(mode + '.db', timeout=10)\n"
        "    for i in range(40):\n"
        "        for c in (a, b):\n"
        "            with c: c.execute('insert into t values (?)', (i,))\n"
        "    print(b.execute('select count(*) from t').fetchone()[0],\n"
        "          a.execute('pragma integrity_check').fetchone()[0])\n"
        "    a.close(); b.close()\n"
        "END\n",
        "delete\n80 ok\ntruncate\n80 ok\nwal\n80 ok\n");
}

static void rsync_copies_both_ways(void **state)
{
    (void)state;
    expect_shell(
        "mkdir $T/src $T/back; cp -r /usr/include/linux/netfilter* $T/src\n"
        "touch -d 2001-01-01 $T/src/netfilter.h\n"
        "rsync -a $T/src/ workspace/; rsync -a workspace/ $T/back/\n"
        "diff -r $T/src $T/back; echo x >> $T/src/netfilter.h\n"
        "rsync -ai $T/src/ workspace/; rsync -ai $T/src/ workspace/\n"
        "diff -r $T/src workspace",
        ">f.st...... netfilter.h\n");
}

static void large_files_come_back_equal(void **state)
{
    (void)state;
    expect_shell(
        "head -c 20000000 /dev/urandom > $T/big; cp $T/big workspace/;"
        "cmp $T/big workspace/big && cp workspace/big workspace/two && "
        "cmp workspace/two $T/big && echo equal",
        "equal\n");
}

static const struct script sights[] = {
    {"what a command made is there, also where it was looked for before",
     "ls workspace/f 2>/dev/null; stat workspace/f 2>/dev/null; "
     "in_write f x; cat workspace/f; ls workspace",
     "x\nf\n"},
    {"what a command changed has its new size and bytes",
     "echo old > workspace/f; cat workspace/f; in_write f longer; "
     "stat -c %s workspace/f; cat workspace/f",
     "old\n7\nlonger\n"},
    {"what a command removed is gone",
     "echo x > workspace/f; cat workspace/f; in_rm f; "
     "cat workspace/f 2>/dev/null || echo gone; ls workspace",
     "x\ngone\n"},
    {"an open handle sees what a command appended",
     "echo 1 > workspace/f; exec 5<workspace/f; cat <&5; "
     "in_append f 2; cat <&5",
     "1\n2\n"},
    {"what was written here is what the command reads",
     "for i in 1 2 3; do echo $i > workspace/f; in_cat f; done; "
     "mv workspace/f workspace/g; in_cat g; rm workspace/g; "
     "in_cat g > $T/out; "
     "cat execs/last/exit_code",
     "1\n2\n3\n3\n1\n"},
    {"bytes written through an open handle are there",
     "exec 5>workspace/f; echo a >&5; in_cat f; echo b >&5; in_cat f",
     "a\na\nb\n"},
    {"a file of a command belongs to the mounting user",
     "in_write f x; stat -c %u workspace/f | sed s/$(id -u)/me/; "
     "echo y >> workspace/f; in_append f z; in_cat f",
     "me\nx\ny\nz\n"},
    {"an absent workspace lists as empty and starts nothing",
     "ls -la workspace | wc -l; cat workspace/x 2>/dev/null; "
     "stat -c %F workspace; cat status",
     "3\ndirectory\nabsent\n"},
    {"a write to an absent one makes the sandbox",
     "echo x > workspace/f; cat workspace/f status", "x\nrunning\n"},
    {"mkdir in an absent one makes the sandbox",
     "mkdir workspace/d; ls workspace; cat status", "d\nrunning\n"},
    {"and go with the sandbox",
     "echo x > workspace/f; echo absent > status; ls -A workspace; "
     "echo running > status; ls -A workspace; "
     "cat workspace/f 2>/dev/null || echo gone",
     "gone\n"},
};

static const struct script over_a_pause[] = {
    {"files stay over a pause",
     "echo x > workspace/f; echo paused > status; cat workspace/f; "
     "ls workspace; echo running > status; cat workspace/f",
     "x\nf\nx\n"},
};

static void both_sides_see_each_other_at_once(void **state)
{
    (void)state;
    expect_scripts(sights, ARRAY_SIZE(sights));
}

static const struct script sights_of_sh[] = {
    {"what a command moved has moved",
     "mkdir workspace/d; echo x > workspace/d/f; cat workspace/d/f; "
     "echo 'mv d e' > exec; cat workspace/e/f; ls workspace",
     "x\nx\ne\n"},
    {"a mode that a command set is seen",
     "echo x > workspace/f; stat -c %a workspace/f; "
     "echo 'chmod 600 f' > exec; stat -c %a workspace/f",
     "644\n600\n"},
    {"a mode that is set here is seen by a command",
     "echo x > workspace/f; chmod 751 workspace/f; "
     "echo 'stat -c \"%a %U\" f; id -un' > exec; tr '\\n' ' ' < exec | "
     "awk '{print $1, $2 == $3}'",
     "751 1\n"},
    {"what a command replaced has its new bytes",
     "echo old > workspace/f; cat workspace/f; "
     "echo 'echo new > g; mv g f' > exec; cat workspace/f",
     "old\nnew\n"},
    {"a command's programs run what was written here",
     "printf '#!/bin/sh\\necho ran\\n' > workspace/p; chmod +x workspace/p; "
     "echo ./p > exec; cat exec",
     "ran\n"},
};

static void a_shell_in_the_sandbox_sees_the_same_files(void **state)
{
    (void)state;
    expect_scripts(sights_of_sh, ARRAY_SIZE(sights_of_sh));
}

static void forty_rounds_see_each_other(void **state)
{
    (void)state;
    expect_shell("for i in $(seq 40); do\n"
                 "in_write f $i; in_write n$i x\n"
                 "[ \"$(cat workspace/f)\" = $i ] || echo stale $i\n"
                 "[ -e workspace/n$i ] || echo missing $i\n"
                 "[ -e workspace/n$((i + 1)) ] && echo early $i\n"
                 "done; ls workspace | wc -l",
                 "41\n");
}

static void files_stay_over_a_pause(void **state)
{
    (void)state;
    if (mnt_scripts()) {
        skip(); /* Its engine has no pause. */
    }
    expect_scripts(over_a_pause, ARRAY_SIZE(over_a_pause));
}

static const struct CMUnitTest tests[] = {
    e2e_test(files_stay_over_a_pause),
    e2e_test(editors_work),
    e2e_test(tar_unpacks_and_packs_the_same),
    e2e_test(git_keeps_a_repository),
    e2e_test_of("sh", git_inside_and_outside_agree),
    e2e_test(sqlite_works_in_both_journal_modes),
    e2e_test(rsync_copies_both_ways),
    e2e_test(large_files_come_back_equal),
    e2e_test(both_sides_see_each_other_at_once),
    e2e_test_of("sh", a_shell_in_the_sandbox_sees_the_same_files),
    e2e_test(forty_rounds_see_each_other),
};

E2E_MAIN(tests)
