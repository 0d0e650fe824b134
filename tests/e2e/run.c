/* `sessionfs run`: a command in a session as if it ran here. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN "\"$SESSIONFS\" run \"$S\" "

/* popen(): starts one, with pipes for its output; line(): its next line;
 * end(): its exit code and what is left of both outputs; read(): a file of the
 * session; running(): waits until a command runs; alive(): whether a `sleep`
 * for so many seconds and N, which nobody else has, is there. A shell of dash
 * can lose a Ctrl-C that comes while it forks, so programs and bash get it. */
#define PYTHON(text)                                                           \
    "python3 -c '\n"                                                           \
    "import os, signal, sys, time\n"                                           \
    "from subprocess import DEVNULL, PIPE, Popen\n"                            \
    "S = os.environ[\"S\"]\n"                                                  \
    "N = f\".{os.getpid()}\"\n"                                                \
    "def popen(*words, session=S, **more):\n"                                  \
    "    return Popen([os.environ[\"SESSIONFS\"], \"run\", session, *words],"  \
    " stdin=DEVNULL, stdout=PIPE, stderr=PIPE, **more)\n"                      \
    "def line(p): return p.stdout.readline().decode()\n"                       \
    "def end(p):\n"                                                            \
    "    out, err = p.communicate(timeout=60)\n"                               \
    "    return p.returncode, out.decode(), err.decode()\n"                    \
    "def read(name): return open(S + \"/\" + name).read()\n"                   \
    "def running(n):\n"                                                        \
    "    name = f\"execs/{n}/status\"\n"                                       \
    "    while not os.path.exists(S + \"/\" + name): time.sleep(0.01)\n"       \
    "    while read(name) != \"running\\n\": time.sleep(0.01)\n"               \
    "def words(pid):\n"                                                        \
    "    try: return open(f\"/proc/{pid}/cmdline\").read().split(\"\\0\")\n"   \
    "    except OSError: return []\n"                                          \
    "def alive(word):\n"                                                       \
    "    return any(words(pid)[:2] == [\"sleep\", word + N]\n"                 \
    "               for pid in os.listdir(\"/proc\") if pid.isdigit())\n"      \
    "def gone(word):\n"                                                        \
    "    until = time.monotonic() + 20\n"                                      \
    "    while alive(word) and time.monotonic() < until: time.sleep(0.01)\n"   \
    "    return not alive(word)\n" text "'\n"

/* ---- With each provider's own words ---- */

static const struct script common[] = {
    {"both outputs and the exit code",
     RUN "-c \"echo out\n${ERR}exit 3\" 2>$T/err; echo $?; cat $T/err",
     "out\n3\nerr\n"},
    {"words without a shell", RUN "echo a b; " RUN "-- false; echo $?",
     "a b\n1\n"},
    {"a word that is no command", RUN "-c no-such-word 2>/dev/null; echo $?",
     "127\n"},
    {"a signal", RUN "-c \"$KILL9\"; echo $?", "137\n"},
    {"a timeout keeps the output",
     RUN "--timeout 1 -c \"echo a\n$NAP$NAP$NAP$NAP\"; echo $?", "a\n124\n"},
    {"the result as JSON",
     RUN "--json -c \"echo a\nexit 4\" > $T/json; echo $?\n"
         "cmp $T/json execs/1/result.json; grep -c '\"exit_code\":4' $T/json",
     "4\n1\n"},
    {"the working directory",
     RUN "true; mkdir -p workspace/sub\n"
         "W=$(python3 -c 'import json\n"
         "print(json.load(open(\"status.json\"))[\"workspace_path\"])')\n"
         "{ " RUN "--cwd sub pwd; " RUN "--cwd $W/sub pwd; } | sed \"s|^$W||\"",
     "/sub\n/sub\n"},
    {"a paused session wakes",
     "echo running > status; [ $PROVIDER = jsonl ] || echo paused > "
     "status\n" RUN "echo a; cat status",
     "a\nrunning\n"},
    {"an id, by --mount and by SESSIONFS_MOUNT",
     "cd /; id=${S##*/}; \"$SESSIONFS\" run --mount $M $id echo a\n"
     "SESSIONFS_MOUNT=$M \"$SESSIONFS\" run $id echo b",
     "a\nb\n"},
    {"a name in the present directory",
     "cd ..; \"$SESSIONFS\" run ${S##*/} echo a\n"
     "cd $S; \"$SESSIONFS\" run . echo b; \"$SESSIONFS\" run ./ echo c",
     "a\nb\nc\n"},
    {"a session that is not there",
     "\"$SESSIONFS\" run $M/sessions/none true 2>$T/e; echo $?\n"
     "\"$SESSIONFS\" run --mount $M none true 2>>$T/e; echo $?\n"
     "grep -c 'No such file' $T/e",
     "125\n125\n2\n"},
    {"what is no session",
     "\"$SESSIONFS\" run $T true 2>&1 | sed \"s|$T|T|\"\n"
     "\"$SESSIONFS\" run $S/workspace true 2>/dev/null; echo $?",
     "sessionfs run: 'T' is not a session's directory\n125\n"},
    {"a bad command line",
     "for words in '' '--bogus x y' \"$S\" \"$S -c a b\" \"$S --timeout 0 a\" "
     "\"$S --timeout x a\" \"$S --env A a\" \"$S --env\"; do\n"
     "\"$SESSIONFS\" run $words 2>$T/e; echo $? $(grep -c '^sessionfs run: ' "
     "$T/e); done; ls execs",
     "125 1\n125 1\n125 1\n125 1\n125 1\n125 1\n125 1\n125 1\n"},
    {"an option that is none, by its name",
     "for words in '--bogus x y' \"$S -x a\" \"$S -xc a\" \"$S --json=1 a\" "
     "\"$S --env\" \"$S -c\" \"$S --cw\" \"$S --jso\"; do\n"
     "\"$SESSIONFS\" run $words 2>&1; done; true",
     "sessionfs run: unknown option '--bogus'; see --help\n"
     "sessionfs run: unknown option '-x'; see --help\n"
     "sessionfs run: unknown option '-x'; see --help\n"
     "sessionfs run: no value is for '--json=1'; see --help\n"
     "sessionfs run: no value for option '--env'; see --help\n"
     "sessionfs run: no value for option '-c'; see --help\n"
     "sessionfs run: no value for option '--cw'; see --help\n"
     "sessionfs run: either a command or -c; see --help\n"},
    {"a request that is refused", RUN "--env 1A=x true 2>&1; echo $?",
     "sessionfs run: the command is refused: '1A' in 'env' is no variable's "
     "name\n125\n"},
    {"an argument that is no UTF-8",
     RUN "echo $'\\xff' 2>&1; echo $?; ls execs",
     "sessionfs run: an argument is not UTF-8, which JSON must be\n125\n"},
    {"two at once take turns",
     PYTHON("nap = os.environ[\"NAP\"] * 3\n"
            "a = popen(\"-c\", \"echo a\\n\" + nap + \"echo b\")\n"
            "first = line(a)\n"
            "b = popen(\"-c\", \"echo c\")\n"
            "print(first, end(a), end(b))\n"
            "def at(n, event):\n"
            "    return [i for i, e in enumerate(open(S + \"/events\"))\n"
            "            if f\"exec.{event}\" in e and f\"\\\"exec\\\":{n},\""
            " in e][0]\n"
            "print(at(2, \"queued\") < at(1, \"ended\") < at(2, "
            "\"started\"))\n"),
     "a\n (0, 'b\\n', '') (0, 'c\\n', '')\nTrue\n"},
    {"a signal takes a queued one from the queue",
     PYTHON("a = popen(\"sleep\", \"100000\")\n"
            "running(1)\n"
            "b = popen(\"echo\", \"b\")\n"
            "while not os.path.exists(S + \"/execs/2\"): time.sleep(0.01)\n"
            "b.send_signal(signal.SIGINT)\n"
            "print(end(b), a.poll(), read(\"execs/2/status\"), end=\"\")\n"
            "a.terminate()\n"
            "print(end(a))\n"),
     "(-2, '', '') None killed\n(-15, '', '')\n"},
    {"two sessions run side by side",
     "mkdir $S-2; echo running > $S-2/status\n" PYTHON(
         "nap = os.environ[\"NAP\"] * 3\n"
         "a = popen(\"-c\", \"echo a\\n\" + nap + \"echo b\")\n"
         "line(a)\n"
         "b = popen(\"-c\", \"echo c\", session=S + \"-2\")\n"
         "print(end(b), a.poll(), end(a))\n"),
     "(0, 'c\\n', '') None (0, 'b\\n', '')\n"},
    {"Ctrl-C ends it",
     PYTHON("a = popen(\"sleep\", \"100000\")\n"
            "running(1)\n"
            "a.send_signal(signal.SIGINT)\n"
            "print(end(a), read(\"execs/1/status\"))\n"),
     "(-2, '', '') killed\n\n"},
    {"a reader that goes away ends it",
     RUN "-c \"echo a\n$NAP$NAP$NAP$NAP$NAP\" | head -n 1\n"
         "echo ${PIPESTATUS[0]}; cat execs/1/status",
     "a\n141\nkilled\n"},
    {"an output that cannot be written ends it",
     RUN "-c \"echo a\n$NAP$NAP$NAP$NAP$NAP\" 2>&1 >/dev/full; echo $?\n"
         "cat execs/1/status",
     "sessionfs run: standard output: No space left on "
     "device\n125\nkilled\n"},
    {"a mount point of that name",
     "cd $T; mkdir run state\n"
     "\"$SESSIONFS\" -o state=$T/state,provider=mem ./run && ls "
     "run/sessions\n"
     "mkdir run/sessions/x; \"$SESSIONFS\" run run/sessions/x echo a\n"
     "umount run",
     "a\n"},
    {"an id in one of two mounts, and in both",
     "cd $T; mkdir other\n"
     "\"$SESSIONFS\" -o state=$T/state,provider=mem other && "
     "mkdir other/sessions/there-$$ $M/sessions/here-$$ "
     "other/sessions/both-$$ $M/sessions/both-$$\n"
     "for id in there here none; do\n"
     "\"$SESSIONFS\" run $id-$$ echo a 2>>$T/e; echo $?; done\n"
     "\"$SESSIONFS\" run both-$$ echo a 2>>$T/e; echo $?\n"
     "grep -c 'no mount has a session' $T/e\n"
     "grep -c \"which session.*$M\" $T/e; grep -c \"which.*$T/other\" $T/e\n"
     "echo absent > $M/sessions/here-$$/status\n"
     "rmdir $M/sessions/here-$$ $M/sessions/both-$$; umount other",
     "a\n0\na\n0\n125\n125\n1\n1\n1\n"},
};

static void runs_a_command_as_if_it_ran_here(void **state)
{
    (void)state;
    expect_scripts(common, ARRAY_SIZE(common));
}

/* ---- With a real shell ---- */

static const struct script exact[] = {
    {"ten megabytes on each output",
     RUN "-c 'head -c 10000000 /dev/urandom > a; head -c 10000000 /dev/urandom "
         "> b; cat a & cat b >&2; wait' > $T/a 2> $T/b; echo $?\n"
         "cmp $T/a workspace/a; cmp $T/b workspace/b",
     "0\n"},
    {"through pipes",
     RUN "-c 'head -c 3000000 /dev/urandom > a; cat a' | cat > $T/a\n"
         "cmp $T/a workspace/a",
     ""},
    {"many small writes",
     RUN "-c 'i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i + 1)); done' "
         "> $T/a; seq 0 2999 | cmp - $T/a",
     ""},
    {"words stay words",
     RUN "printf '[%s]\\n' 'a  b' '' \"it's\" '$HOME' $'c\\nd' 'ü' -- -c",
     "[a  b]\n[]\n[it's]\n[$HOME]\n[c\nd]\n[ü]\n[--]\n[-c]\n"},
    {"options end at the command",
     RUN "printf %s, --json -h; " RUN "-- printf %s, --json",
     "--json,-h,"
     "--json,"},
    {"an empty input", RUN "wc -c < /dev/null; : | " RUN "wc -c", "0\n0\n"},
    {"no input", RUN "wc -c <&-", "0\n"},
    {"a binary input",
     "head -c 1000000 /dev/urandom > $T/in; " RUN "cat < $T/in | cmp - $T/in\n"
     "printf 'a\\0\\377' | " RUN "od -An -c",
     "   a  \\0 377\n"},
    {"the largest input", "head -c 6000000 /dev/zero | " RUN "wc -c",
     "6000000\n"},
    {"an input that is too large",
     "head -c 7000000 /dev/zero | " RUN "wc -c 2>&1; echo $?; ls execs",
     "sessionfs run: standard input is over 6291456 bytes; put it into a file "
     "in workspace/, and let the command read that\n125\n"},
    {"a terminal is no input",
     "script -qec '" RUN "-c \"wc -c; tty; :\"' $T/typescript < /dev/null",
     "0\r\nnot a tty\r\n"},
    {"closed outputs",
     RUN "-c 'echo a; echo b >&2' 2>&-\n" RUN
         "-c 'echo a; echo b >&2' 2>&1 >&-",
     "a\nb\n"},
    {"exit codes",
     "for n in 0 1 2 124 255; do " RUN "-c \"exit $n\"\n"
     "echo $?; done",
     "0\n1\n2\n124\n255\n"},
    {"signals",
     "for n in SEGV ABRT TERM; do " RUN "-c \"kill -$n \\$\\$\"\n"
     "echo $?; done",
     "139\n134\n143\n"},
    {"variables",
     RUN "--env A='x y' --env B= --env C=a=b -c 'echo \"$A,$B,$C\"'",
     "x y,,a=b\n"},
    {"what cannot be run",
     "for words in no-such-program /etc/passwd '--cwd none true'; do\n" RUN
     "$words 2>/dev/null; echo $?; done",
     "127\n126\n127\n"},
};

static void passes_bytes_words_and_codes_exactly(void **state)
{
    (void)state;
    expect_scripts(exact, ARRAY_SIZE(exact));
}

/* Of an engine that tells HUP from its own end, and has words of its own. */
static const struct script told[] = {
    {"the signal HUP", RUN "-c 'kill -HUP $$'; echo $?", "129\n"},
    {"a program that is not there", RUN "no-such-program 2>&1; echo $?",
     "sessionfs run: command 1: cannot run 'no-such-program': No such file or "
     "directory\n127\n"},
    {"a file that is no program", RUN "/etc/passwd 2>&1; echo $?",
     "sessionfs run: command 1: cannot run '/etc/passwd': Permission "
     "denied\n126\n"},
    {"a working directory that is not there",
     RUN "--cwd none true 2>&1; echo $?",
     "sessionfs run: command 1: cannot work in '/workspace/none': No such file "
     "or directory\n127\n"},
};

static void tells_ends_in_its_own_words(void **state)
{
    (void)state;
    expect_scripts(told, ARRAY_SIZE(told));
}

static const struct script live[] = {
    {"a line arrives while the command runs",
     PYTHON("a = popen(\"-c\", \"echo a; until [ -e go ]; do sleep 0.05; done;"
            " echo b\")\n"
            "print(line(a), end=\"\")\n"
            "print(open(S + \"/execs/1/status\").read(), end=\"\")\n"
            "open(S + \"/workspace/go\", \"w\").close()\n"
            "print(end(a))\n"),
     "a\nrunning\n(0, 'b\\n', '')\n"},
    {"a quiet one costs no time",
     PYTHON(
         "import resource\n"
         "a = popen(\"sleep\", \"2\")\n"
         "print(end(a))\n"
         "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
         "print(used.ru_nvcsw < 200, used.ru_utime + used.ru_stime < 0.5)\n"),
     "(0, '', '')\nTrue True\n"},
    {"Ctrl-C ends all processes",
     PYTHON("a = popen(\"-c\", f\"sleep 1231{N} | setsid -w sleep 1232{N}\")\n"
            "while not (alive(\"1231\") and alive(\"1232\")): "
            "time.sleep(0.01)\n"
            "a.send_signal(signal.SIGINT)\n"
            "print(end(a)[0], gone(\"1231\"), gone(\"1232\"))\n"),
     "-2 True True\n"},
    {"TERM and HUP, too",
     PYTHON("for n in signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:\n"
            "    a = popen(\"-c\", f\"echo a; sleep 1233{N}\")\n"
            "    line(a)\n"
            "    a.send_signal(n)\n"
            "    print(end(a)[0], gone(\"1233\"))\n"),
     "-15 True\n-1 True\n131 True\n"},
    {"a second Ctrl-C kills what ignores the first",
     PYTHON("a = popen(\"bash\", \"-c\", \"trap \\\"echo b\\\" INT; echo a;"
            " while :; do sleep 0.05; done\")\n"
            "print(line(a), end=\"\")\n"
            "a.send_signal(signal.SIGINT)\n"
            "print(line(a), end=\"\")\n"
            "a.send_signal(signal.SIGINT)\n"
            "print(end(a)[0])\n"),
     "a\nb\n-2\n"},
    {"a command that handles Ctrl-C has its own exit code",
     PYTHON("a = popen(\"bash\", \"-c\", \"trap \\\"exit 7\\\" INT; echo a;"
            " while :; do sleep 0.05; done\")\n"
            "line(a)\n"
            "a.send_signal(signal.SIGINT)\n"
            "print(end(a)[0])\n"),
     "7\n"},
    {"what nohup ignores is not passed on",
     PYTHON("def ignore(): signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
            "a = popen(\"-c\", \"echo a; until [ -e go ]; do sleep 0.05; "
            "done\", preexec_fn=ignore)\n"
            "line(a)\n"
            "a.send_signal(signal.SIGHUP)\n"
            "open(S + \"/workspace/go\", \"w\").close()\n"
            "print(end(a)[0])\n"),
     "0\n"},
    {"Ctrl-C at a terminal",
     PYTHON("import pty\n"
            "pid, fd = pty.fork()\n"
            "if pid == 0:\n"
            "    os.execv(os.environ[\"SESSIONFS\"], [\"sessionfs\", \"run\","
            " S, \"bash\", \"-c\", f\"sleep 1234{N}; :\"])\n"
            "while not alive(\"1234\"): time.sleep(0.01)\n"
            "os.write(fd, b\"\\x03\")\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),"
            " gone(\"1234\"))\n"),
     "-2 True\n"},
    {"Ctrl-C ends a shell's loop, too",
     PYTHON(
         "import pty\n"
         "pid, fd = pty.fork()\n"
         "if pid == 0:\n"
         "    os.execvp(\"bash\", [\"bash\", \"-c\", \"for i in 1 2 3; do "
         "\\\"$SESSIONFS\\\" run \\\"$S\\\" sleep 1235\" + N + \"; done\"])\n"
         "while not alive(\"1235\"): time.sleep(0.01)\n"
         "os.write(fd, b\"\\x03\")\n"
         "print(gone(\"1235\"),"
         " os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
         "print(*sorted(os.listdir(S + \"/execs\")))\n"),
     "True -2\n1 last\n"},
    {"an endless output ends with its reader",
     RUN "yes | head -n 1; echo ${PIPESTATUS[0]}; cat execs/1/status\n" RUN
         "-c 'yes >&2' 2>&1 >/dev/null | head -n 1; echo ${PIPESTATUS[0]}",
     "y\n141\nkilled\ny\n141\n"},
    {"a command that ignores TERM ends with its reader",
     RUN "-c 'trap \"\" TERM PIPE; while :; do echo a; sleep 0.05; done' | "
         "head -n 1; echo ${PIPESTATUS[0]}; cat execs/1/exit_code",
     "a\n141\n137\n"},
    {"a short command whose reader goes away",
     RUN "seq 1 200000 | head -n 1; echo ${PIPESTATUS[0]}; cat error",
     "1\n141\n"},
    {"a slow reader gets all, and Ctrl-C works meanwhile",
     RUN "seq 1 100000 | { sleep 0.5; cmp - <(seq 1 100000); }\n" PYTHON(
         "a = popen(\"yes\")\n"
         "line(a)\n"
         "time.sleep(0.3)\n"
         "a.send_signal(signal.SIGINT)\n"
         "print(end(a)[0])\n"),
     "-2\n"},
};

static void streams_and_obeys_signals(void **state)
{
    (void)state;
    expect_scripts(live, ARRAY_SIZE(live));
}

/* ---- Failures of the mount ---- */

static void tells_why_a_session_does_not_start(void **state)
{
    (void)state;
    mnt_fault(mnt.id, "create", "errno EDQUOT");
    expect_shell(RUN
                 "true 2>&1 | sed 's/: c.*/: WORDS/'; echo ${PIPESTATUS[0]}",
                 "sessionfs run: the session does not start: WORDS\n125\n");
    mnt_fault(mnt.id, "create", NULL);
}

static int run_for_long(void *arg)
{
    (void)execl("/bin/sh", "sh", "-c",
                "\"$SESSIONFS\" run \"$0\" sleep 100000 </dev/null 2>&0\n"
                "echo $? > \"$1\"",
                mnt.session, (const char *)arg, (char *)NULL);
    return 1;
}

static void ends_when_the_daemon_dies(void **state)
{
    char code[2 * MNT_PATH_SIZE];
    struct child child;

    (void)state;
    (void)snprintf(code, sizeof(code), "%s/code", mnt.dir);
    child = child_start(run_for_long, code);
    eventually(access(in("execs/1"), F_OK) == 0);
    eventually_text(in("execs/1/status"), "running\n");
    /* Waits for all processes, the client too. */
    mnt_kill();
    (void)close(child.ready);
    expect_text(code, "125\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        e2e_test(runs_a_command_as_if_it_ran_here),
        e2e_test_of("sh", passes_bytes_words_and_codes_exactly),
        e2e_test_of("local", tells_ends_in_its_own_words),
        e2e_test_of("sh", streams_and_obeys_signals),
        e2e_test_of("mem", tells_why_a_session_does_not_start),
        e2e_test_of("mem", ends_when_the_daemon_dies),
    };

    (void)setenv("SESSIONFS", SESSIONFS_PROGRAM, 1);
    (void)setenv("PROVIDER", argc > 1 ? argv[1] : "", 1);
    return e2e_run(argc, argv, tests, ARRAY_SIZE(tests));
}
