/* Sessions: mkdir, rmdir, mv, status, and the control files. */
#include "tests/e2e/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SIXTEEN    "aaaaaaaaaaaaaaaa"
#define SIXTY_FOUR SIXTEEN SIXTEEN SIXTEEN SIXTEEN
#define TWO_FIFTY_5                                                            \
    SIXTY_FOUR SIXTY_FOUR SIXTY_FOUR SIXTEEN SIXTEEN SIXTEEN "aaaaaaaaaaaaaaa"

static mode_t mode_of(const char *path)
{
    struct stat st;

    expect_ok(lstat(path, &st));
    return st.st_mode;
}

static void a_session_is_made_listed_and_removed(void **state)
{
    (void)state;
    mnt_session("one");
    assert_true(S_ISDIR(mode_of(at("sessions/one"))));
    expect_shell("ls $M/sessions | grep -x one", "one\n");
    expect_shell("ls $M/sessions/one | grep -Ex 'status|workspace|exec|execs|"
                 "events|error|status.json' | sort | tr '\\n' ' '",
                 "error events exec execs status status.json workspace ");
    expect_errno(mkdir(at("sessions/one"), 0700), EEXIST);
    expect_ok(rmdir(at("sessions/one")));
    expect_errno(access(at("sessions/one"), F_OK), ENOENT);
    expect_errno(rmdir(at("sessions/one")), ENOENT);
}

static void a_new_session_with_an_old_id_is_another_one(void **state)
{
    struct stat before;
    struct stat after;

    (void)state;
    mnt_session("again");
    expect_ok(stat(at("sessions/again/status"), &before));
    expect_shell("cd ../again && echo old > workspace/f; echo true > exec; "
                 "echo absent > status",
                 "");
    expect_ok(rmdir(at("sessions/again")));
    mnt_session("again");
    expect_ok(stat(at("sessions/again/status"), &after));
    assert_int_not_equal(before.st_ino, after.st_ino);
    expect_shell("ls -A $M/sessions/again/workspace", "");
    expect_shell("ls -A $M/sessions/again/execs", "");
}

static const char *const good_ids[] = {
    "a", "Z", "0", "a.b", "a..b", "a-b_c.d", "x-", SIXTY_FOUR,
};

static void good_ids_are_taken(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(good_ids); i++) {
        if (mkdir(at("sessions/%s", good_ids[i]), 0700) != 0) {
            fail_msg("'%s': %s", good_ids[i], strerror(errno));
        }
        expect_ok(rmdir(at("sessions/%s", good_ids[i])));
    }
}

static const struct {
    const char *id;
    int made;   /* errno of mkdir, */
    int looked; /* of lookup. */
} bad_ids[] = {
    {".hidden", EINVAL, ENOENT},
    {"-rf", EINVAL, ENOENT},
    {"_x", EINVAL, ENOENT},
    {"a b", EINVAL, ENOENT},
    {"a\nb", EINVAL, ENOENT},
    {"a;b", EINVAL, ENOENT},
    {"$(x)", EINVAL, ENOENT},
    {"a%s%n", EINVAL, ENOENT},
    {"\xc3\xa4", EINVAL, ENOENT},
    {"\xff", EINVAL, ENOENT},
    {"a\x01", EINVAL, ENOENT},
    {SIXTY_FOUR "a", EINVAL, ENOENT},
    {TWO_FIFTY_5, EINVAL, ENOENT},
    {TWO_FIFTY_5 "a", ENAMETOOLONG, ENAMETOOLONG},
};

static void bad_ids_are_refused_with_words(void **state)
{
    struct stat st;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(bad_ids); i++) {
        print_message("id '%.20s'\n", bad_ids[i].id);
        expect_errno(mkdir(at("sessions/%s", bad_ids[i].id), 0700),
                     bad_ids[i].made);
        expect_errno(lstat(at("sessions/%s", bad_ids[i].id), &st),
                     bad_ids[i].looked);
    }
    expect_shell("grep -c EINVAL $M/error | grep -vx 0 >/dev/null && "
                 "wc -l < $M/error | awk '{print ($1 <= 20)}'",
                 "1\n");
}

static void an_id_is_changed_by_mv(void **state)
{
    (void)state;
    mnt_session("from");
    mnt_session("taken");
    expect_shell("cd ..; echo kept > from/workspace/f; echo true > from/exec; "
                 "mv from to; cat to/workspace/f; cat to/execs/1/command",
                 "kept\ntrue\n");
    expect_errno(access(at("sessions/from"), F_OK), ENOENT);
    expect_errno(rename(at("sessions/to"), at("sessions/taken")), ENOTEMPTY);
    expect_shell(
        "cd ..; mv to taken 2>&1 | grep -c 'not empty'; "
        "tail -n 1 $M/error | grep -c 'rename.*to.*ENOTEMPTY.*another'",
        "1\n1\n");
    expect_errno(rename(at("sessions/to"), at("sessions/-bad")), EINVAL);
    expect_errno(rename(at("sessions/to"), at("to")), EPERM);
    expect_errno(rename(at("sessions/to/status"), at("sessions/x")), EPERM);
    expect_errno(rename(at("sessions/no"), at("sessions/x")), ENOENT);
    mnt_session("from");
    expect_shell("ls $M/sessions/from/workspace", "");
}

static const struct script words[] = {
    {"a new session is absent", "cat status", "absent\n"},
    {"running", "echo running > status; cat status", "running\n"},
    {"resume", "echo resume > status; cat status", "running\n"},
    {"without a newline", "printf running > status; cat status", "running\n"},
    {"with blanks behind", "echo 'running  ' > status; cat status",
     "running\n"},
    {"paused when absent", "echo paused > status; cat status", "absent\n"},
    {"absent when absent", "echo absent > status; cat status", "absent\n"},
    {"absent", "echo running >status; echo absent >status; cat status",
     "absent\n"},
    {"delete", "echo running >status; echo delete >status; cat status",
     "absent\n"},
};

static const struct script pauses[] = {
    {"paused", "echo running >status; echo paused >status; cat status",
     "paused\n"},
    {"pause twice",
     "echo running >status; echo pause >status; echo pause >status;"
     "cat status",
     "paused\n"},
    {"paused and back",
     "echo running >status; echo paused >status;"
     "echo running >status; cat status",
     "running\n"},
    {"a command resumes",
     "echo running >status; echo paused >status; echo 'echo hi' >exec;"
     "cat exec status",
     "hi\nrunning\n"},
};

static void status_words_do_what_they_say(void **state)
{
    (void)state;
    expect_scripts(words, ARRAY_SIZE(words));
}

static void words_of_a_pause_do_what_they_say(void **state)
{
    (void)state;
    if (mnt_scripts()) {
        skip(); /* Its engine has no pause. */
    }
    expect_scripts(pauses, ARRAY_SIZE(pauses));
}

static const char *const bad_words[] = {
    "\n",   " ",     "runnin",  "running now",     "RUNNING",
    "lost", "error", "deleted", "running\nabsent", "starting",
};

static void other_words_are_einval_from_write(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(bad_words); i++) {
        struct wrote done = put_bytes(in("status"), O_TRUNC, bad_words[i],
                                      strlen(bad_words[i]));

        print_message("word '%s'\n", bad_words[i]);
        assert_int_equal(done.open, 0);
        assert_int_equal(done.write, EINVAL);
        assert_int_equal(done.close, 0);
    }
    assert_int_equal(put_bytes(in("status"), 0, "run\0ning", 8).write, EINVAL);
    expect_text(in("status"), "absent\n");
    expect_shell("grep -c EINVAL error", "11\n");
}

static void status_json_tells_the_whole_status(void **state)
{
    (void)state;
    expect_shell(
        "cat > $T/check <<'END'\n"
        "import json, sys\n"
        "s = json.load(open('status.json'))\n"
        "for key in ('configured exists provider session_status external_id'\n"
        "            ' display_name workspace_path metadata'\n"
        "            ' init_completed_at last_init_error created_at'\n"
        "            ' updated_at observed observed_at engine_state'\n"
        "            ' generation').split():\n"
        "    assert key in s, key\n"
        "assert 'provider_state' not in s\n"
        "print(s['exists'], s['observed'])\n"
        "END\n"
        "python3 $T/check; echo running > status; python3 $T/check",
        "False absent\nTrue running\n");
}

static void deleting_takes_two_steps(void **state)
{
    (void)state;
    expect_shell("cd workspace; mkdir d; echo x > d/f; echo y > g", "");
    expect_errno(rmdir(mnt.session), ENOTEMPTY);
    expect_shell("rm -rf $S 2>$T/err; test -s $T/err && echo told; "
                 "ls workspace; cat status; ls | grep -cEx 'status|exec|error'",
                 "told\nrunning\n3\n");
    put_ok(in("status"), "absent");
    expect_ok(rmdir(mnt.session));
    expect_errno(access(mnt.session, F_OK), ENOENT);
}

static void control_files_cannot_be_removed_or_replaced(void **state)
{
    static const char *const names[] = {
        "status", "status.json", "exec", "events", "error",
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_SIZE(names); i++) {
        expect_errno(unlink(in("%s", names[i])), EPERM);
        expect_errno(rename(in("%s", names[i]), in("x")), EPERM);
    }
    expect_errno(unlink(at("README")), EPERM);
    expect_errno(rmdir(in("workspace")), EPERM);
    expect_errno(rmdir(in("execs")), EPERM);
    expect_errno(rmdir(at("sessions")), EPERM);
    expect_errno(open(in("newfile"), O_CREAT | O_WRONLY, 0600), EPERM);
    expect_errno(mkdir(in("newdir"), 0700), EPERM);
    expect_errno(mkdir(at("newdir"), 0700), EPERM);
    expect_errno(open(at("sessions/file"), O_CREAT | O_WRONLY, 0600), EPERM);
    expect_errno(symlink("x", at("sessions/link")), EPERM);
    expect_errno(link(in("status"), in("status2")), EPERM);
    expect_errno(rename(in("workspace"), in("w")), EPERM);
}

static const struct {
    const char *path; /* Of the mount; @ is the session. */
    mode_t mode;
} modes[] = {
    {"README", S_IFREG | 0400},
    {"stats", S_IFREG | 0400},
    {"error", S_IFREG | 0400},
    {"sessions", S_IFDIR | 0700},
    {"sessions/@", S_IFDIR | 0700},
    {"sessions/@/status", S_IFREG | 0600},
    {"sessions/@/status.json", S_IFREG | 0400},
    {"sessions/@/exec", S_IFREG | 0600},
    {"sessions/@/execs", S_IFDIR | 0700},
    {"sessions/@/execs/1", S_IFDIR | 0700},
    {"sessions/@/execs/1/output", S_IFREG | 0400},
    {"sessions/@/execs/1/wait", S_IFREG | 0400},
    {"sessions/@/execs/last", S_IFLNK | 0777},
    {"sessions/@/events", S_IFREG | 0400},
    {"sessions/@/error", S_IFREG | 0400},
};

static void modes_and_owners_are_the_mounting_users(void **state)
{
    size_t i;

    (void)state;
    expect_shell("echo true > exec", "");
    for (i = 0; i < ARRAY_SIZE(modes); i++) {
        const char *rest = strchr(modes[i].path, '@');
        const char *path = rest ? at("sessions/%s%s", mnt.id, rest + 1)
                                : at("%s", modes[i].path);
        struct stat st;

        expect_ok(lstat(path, &st));
        if (st.st_mode != modes[i].mode) {
            fail_msg("%s: mode %o, want %o", path, st.st_mode, modes[i].mode);
        }
        assert_int_equal(st.st_uid, geteuid());
        assert_int_equal(st.st_gid, getegid());
    }
    expect_ok(chmod(in("status"), 0600));
    expect_errno(chmod(in("status"), 0666), EPERM);
    expect_errno(chmod(mnt.session, 0755), EPERM);
    expect_errno(chown(in("status"), 1234, (gid_t)-1), EPERM);
    expect_ok(truncate(in("status"), 0));
}

static void the_top_has_readme_stats_and_error(void **state)
{
    (void)state;
    expect_shell("head -c 100000 $M/README | grep -c 'sessions/' | "
                 "grep -vx 0 > /dev/null && echo y",
                 "y\n");
    expect_shell("grep -Ev '^(# (HELP|TYPE) [a-z_]+ .*|"
                 "[a-z_]+(\\{[^}]*\\})? [0-9.e+]+)$' $M/stats; "
                 "grep -c '^# TYPE' $M/stats | awk '{print ($1 > 0)}'",
                 "1\n");
}

static void every_size_is_what_a_read_gives(void **state)
{
    (void)state;
    expect_shell("echo 'echo out; echo err >&2; exit 3' > exec; "
                 "echo bad > status 2>/dev/null\n"
                 "cd $M; find . -path '*/workspace' -prune -o -type f "
                 "-print | grep -E \"^./[^/]*$|/$(basename $S)/\" > $T/list\n"
                 "echo $S | sed 's,.*/,./sessions/,;s,$,/execs/1/wait,' "
                 ">> $T/list\n"
                 "while read f; do\n"
                 "  a=$(stat -c %s $f); b=$(wc -c < $f)\n"
                 "  [ $f = ./stats ] || [ $a = $b ] || echo $f: $a is $b\n"
                 "done < $T/list; wc -l < $T/list | awk '{print ($1 > 14)}'",
                 "1\n");
}

static void copying_tools_copy_control_files_whole(void **state)
{
    (void)state;
    expect_scripts(
        (const struct script[]){
            {"cp", "cp status $T/c; cat $T/c", "absent\n"},
            {"cp -r of a record",
             "echo 'echo hi' > exec; cp -rL execs/last $T/c; cat $T/c/output",
             "hi\n"},
            {"tar",
             "echo 'echo hi' > exec; tar cf - execs | tar xf - -C $T; "
             "cat $T/execs/1/output $T/execs/1/exit_code",
             "hi\n0\n"},
            {"python shutil",
             "python3 -c 'import shutil; shutil.copyfile(\"status\", "
             "\"'$T'/c\")'; cat $T/c",
             "absent\n"},
            {"node",
             "node -e 'fs.copyFileSync(\"status\", process.env.T + \"/c\")';"
             "cat $T/c",
             "absent\n"},
        },
        access("/usr/bin/node", X_OK) == 0 ? 5 : 4);
}

static void df_has_real_figures(void **state)
{
    const char *paths[] = {mnt.path, mnt.session, in("workspace")};
    struct statvfs fs;
    size_t i;

    (void)state;
    for (i = 0; i < 2 * ARRAY_SIZE(paths); i++) {
        expect_ok(statvfs(paths[i % ARRAY_SIZE(paths)], &fs));
        assert_true(fs.f_blocks > 0 && fs.f_bfree > 0 && fs.f_bsize > 0);
        assert_true(fs.f_files > 0);
        assert_int_equal(fs.f_namemax, 255);
        if (i + 1 == ARRAY_SIZE(paths)) {
            mnt_running();
        }
    }
}

static void events_are_json_lines_with_rising_numbers(void **state)
{
    (void)state;
    expect_shell(
        "echo 'exit 4' > exec; echo running > status; echo absent > status\n"
        "python3 -c \"\n"
        "import json\n"
        "last = 0\n"
        "for line in open('events'):\n"
        "    e = json.loads(line)\n"
        "    assert e['seq'] > last, line\n"
        "    last = e['seq']\n"
        "    for key in 'time event uid pid'.split():\n"
        "        assert key in e, line\n"
        "print(last >= 5)\n\"",
        "True\n");
}

/* Whose last file is forgotten while the call that names it still ends. */
static void sessions_come_to_rest_while_their_files_are_used(void **state)
{
    (void)state;
    expect_shell(
        "python3 - <<'END'\n"
        "import os, random, threading, time\n"
        "top = os.environ['M'] + '/sessions/rest%d'\n"
        "end = time.time() + 4\n"
        "for i in range(6): os.mkdir(top % i)\n"
        "def attempt(f, *args):\n"
        "    try: return f(*args)\n"
        "    except OSError as e: assert e.errno != 107 and e.errno != 103\n"
        "def put(path, text):\n"
        "    with open(path, 'w') as f: f.write(text)\n"
        "def files(k):\n"
        "    while time.time() < end:\n"
        "        path = top % random.randrange(6) + '/workspace/f%d' % k\n"
        "        attempt(put, path, 'x'); attempt(os.unlink, path)\n"
        "def lives():\n"
        "    while time.time() < end:\n"
        "        at = top % random.randrange(6)\n"
        "        attempt(put, at + '/exec', 'true')\n"
        "        attempt(put, at + '/status', random.choice("
        "['paused', 'running', 'absent']))\n"
        "threads = [threading.Thread(target=files, args=(k,)) "
        "for k in range(5)]\n"
        "threads += [threading.Thread(target=lives) for k in range(4)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "for i in range(6):\n"
        "    put(top % i + '/status', 'absent'); os.rmdir(top % i)\n"
        "print('well')\n"
        "END\n",
        "well\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_session_is_made_listed_and_removed),
    e2e_test(a_new_session_with_an_old_id_is_another_one),
    e2e_test(good_ids_are_taken),
    e2e_test(bad_ids_are_refused_with_words),
    e2e_test(an_id_is_changed_by_mv),
    e2e_test(status_words_do_what_they_say),
    e2e_test(words_of_a_pause_do_what_they_say),
    e2e_test(other_words_are_einval_from_write),
    e2e_test(status_json_tells_the_whole_status),
    e2e_test(deleting_takes_two_steps),
    e2e_test(control_files_cannot_be_removed_or_replaced),
    e2e_test(modes_and_owners_are_the_mounting_users),
    e2e_test(the_top_has_readme_stats_and_error),
    e2e_test(every_size_is_what_a_read_gives),
    e2e_test(copying_tools_copy_control_files_whole),
    e2e_test(df_has_real_figures),
    e2e_test(events_are_json_lines_with_rising_numbers),
    e2e_test(sessions_come_to_rest_while_their_files_are_used),
};

E2E_MAIN(tests)
