/* Background commands, signals, timeouts, retention, much output. */
#include "tests/e2e/tools.h"

#include "core/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* bg COMMAND: runs it in the background and prints its number. */
#define BG                                                                     \
    "bg() { python3 -c 'import json, os, sys\n"                                \
    "f = os.open(\"exec.json\", os.O_RDWR)\n"                                  \
    "os.write(f, json.dumps({\"command\": sys.argv[1], \"background\": True,"  \
    " \"timeout_ms\": int(sys.argv[2])}).encode())\n"                          \
    "a = json.loads(os.read(f, 4096))\n"                                       \
    "assert os.read(f, 9) == b\"\"\n"                                          \
    "assert a[\"status\"] == \"running\" and a[\"process_id\"] > 0, a\n"       \
    "print(a[\"id\"])\n"                                                       \
    "os.close(f)' \"$1\" ${2:-600000}; }\n"                                    \
    "ms() { echo $(($(date +%s%N) / 1000000)); }\n"

static const struct script background[] = {
    {"the queue goes on beside it",
     BG "bg \"$NAP$NAP$NAP\"; cat execs/1/status\n"
        "echo 'echo hi' > exec; cat exec; cat execs/2/status execs/1/status\n"
        "cat execs/1/wait; cat execs/1/status\n",
     "1\nrunning\nhi\nexited\nrunning\n0\nexited\n"},
    {"several at once, and a fresh handle's answer",
     BG "bg \"echo a\n$NAP$NAP$NAP\"; bg \"echo b\n$NAP$NAP$NAP\"\n"
        "cat exec.json | grep -c '\"status\":\"running\"'; cat execs/1/status\n"
        "cat execs/1/wait execs/2/wait\n"
        "cat execs/?/output; grep -c '\"stdout\":\"b\\\\n\"' exec.json",
     "1\n2\n1\nrunning\n0\n0\na\nb\n1\n"},
    {"it is recorded as others are",
     BG "bg 'echo out'; cat execs/1/wait; cat execs/1/command; echo\n"
        "cat execs/1/stdout execs/1/exit_code execs/last/status\n"
        "grep -c '\"exec\":1' events",
     "1\n0\necho out\nout\n0\nexited\n3\n"},
    {"its timeout",
     BG "t=$(ms); bg \"$NAP$NAP$NAP$NAP\" 200; cat execs/1/wait; "
        "cat execs/1/status execs/1/error; echo $(($(ms) - t < 2400))\n",
     "1\n124\ntimeout\nit was ended after its timeout of 200 ms\n1\n"},
    {"the end of a quick one is not its answer",
     BG "for i in 1 2 3; do bg true; cat execs/$i/wait; done",
     "1\n0\n2\n0\n3\n"
     "0\n"},
};

/* Files that execve closes: PROGRAM opens them, and is another then. */
#define BECOMES(program)                                                       \
    "python3 -c 'import os\n" program "\nos.execv(\"/bin/true\", "             \
    "[\"true\"])'\n"

static const struct script closed_by_execve[] = {
    {"a command",
     BECOMES(
         "os.write(os.open(\"exec\", os.O_WRONLY), b\"echo hi\")") "cat exec",
     "hi\n"},
    {"many files",
     BECOMES("fds = [os.open(\"workspace/%d\" % i, os.O_RDWR | os.O_CREAT) "
             "for i in range(500)]") "ls workspace | wc -l",
     "500\n"},
};

static const struct script pauses[] = {
    {"a pause and a deletion are refused while it runs",
     BG "bg \"$NAP$NAP$NAP$NAP$NAP\"\n"
        "for w in paused absent; do bash -c \"echo $w > status\" 2>&1 | "
        "grep -o busy; done; echo KILL > execs/1/signal\n"
        "cat execs/1/wait; echo paused > status; cat status",
     "1\nbusy\nbusy\n137\npaused\n"},
};

static const struct script signals[] = {
    {"by name and number",
     BG "n=0; for s in TERM SIGTERM 15 kill sigkill 9 INT HUP; do\n"
        "n=$((n + 1)); bg \"$NAP$NAP$NAP\" > /dev/null\n"
        "echo $s > execs/$n/signal; cat execs/$n/wait; done\n"
        "cat execs/1/status; grep -c '\"event\":\"exec.signal\"' events\n",
     "143\n143\n143\n137\n137\n137\n130\n129\nkilled\n8\n"},
    {"words that are no signal",
     BG "bg \"$NAP$NAP$NAP$NAP$NAP\" > /dev/null\n"
        "for s in 0 65 -9 9x SIG SIGSIG BOGUS '9 9'; "
        "do bash -c \"printf %s '$s' > execs/1/signal\" 2>&1 | "
        "grep -o 'Invalid argument'; done\n"
        "echo KILL > execs/1/signal; cat execs/1/wait",
     "Invalid argument\nInvalid argument\nInvalid argument\n"
     "Invalid argument\nInvalid argument\nInvalid argument\n"
     "Invalid argument\nInvalid argument\n137\n"},
    {"one that does not run any more",
     "echo true > exec; bash -c 'echo TERM > execs/1/signal' 2>&1 | "
     "grep -o 'No such process'; cat execs/1/signal",
     "No such process\n"},
};

/* Each command leaves processes that are hard to end, and prints a word. */
static const char *const stubborn[] = {
    "setsid sleep 9871 & echo up; sleep 9871",
    "(setsid sh -c 'sleep 9872 & sleep 9872' &) & echo up; sleep 9872",
    "trap '' TERM INT HUP; echo up; sleep 9873; sleep 9873",
    "sleep 9874 & kill -STOP $!; echo up; kill -STOP $$; sleep 9874",
    "for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; sleep 9875; sleep 9875) & "
    "done; echo up; wait",
    "nohup setsid sh -c 'trap : TERM; sleep 9876; sleep 9876' & "
    "echo up; exec sleep 9876",
};

static void a_timeout_takes_the_whole_tree_within_two_seconds(void **state)
{
    char text[512];
    char word[16];

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(stubborn); i++) {
        int64_t start;
        int64_t took;

        (void)snprintf(word, sizeof(word), "sleep 987%u", i + 1);
        (void)snprintf(text, sizeof(text),
                       "{\"argv\": [\"sh\", \"-c\", \"%s\"], "
                       "\"timeout_ms\": 1000}",
                       stubborn[i]);
        start = clock_ms();
        put_ok(in("exec.json"), text);
        took = clock_ms() - start;
        if (process_exists(word)) {
            fail_msg("'%s' is left of: %s", word, stubborn[i]);
        }
        assert_in_range(took, 1000, 1000 + 3 * 2000);
        expect_text(in("execs/%u/status", i + 1), "timeout\n");
        expect_text(in("execs/%u/exit_code", i + 1), "124\n");
        expect_text(in("execs/%u/stdout", i + 1), "up\n");
    }
}

static void an_interrupted_close_ends_all_that_it_waits_for(void **state)
{
    (void)state;
    expect_shell("python3 -c 'import json, os, signal, sys, time\n"
                 "pid = os.fork()\n"
                 "if pid == 0:\n"
                 "    signal.signal(signal.SIGINT, lambda *a: None)\n"
                 "    f = os.open(\"exec.json\", os.O_WRONLY)\n"
                 "    for i in range(3):\n"
                 "        os.write(f, json.dumps({\"command\": "
                 "os.environ[\"NAP\"] * 30})"
                 ".encode())\n"
                 "    try: os.close(f)\n"
                 "    except OSError as e: print(e.strerror, flush=True)\n"
                 "    os._exit(0)\n"
                 "while not os.path.exists(\"execs/3\"): time.sleep(0.01)\n"
                 "time.sleep(0.3)\n"
                 /* Once more where it came before the close. */
                 "while os.waitpid(pid, os.WNOHANG)[0] == 0:\n"
                 "    os.kill(pid, signal.SIGINT)\n"
                 "    t = time.monotonic()\n"
                 "    while time.monotonic() - t < 1 and os.waitid(os.P_PID,\n"
                 "        pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:\n"
                 "        time.sleep(0.01)\n"
                 "print(time.monotonic() - t < 1)\n'\n"
                 "cat execs/?/wait execs/?/status",
                 "Interrupted system call\nTrue\n143\n"
                 "killed\nkilled\nkilled\n");
}

static void the_newest_thousand_commands_stay(void **state)
{
    (void)state;
    expect_shell(
        BG "for i in $(seq 300); do n=$n$NAP; done; bg \"$n\"\n"
           "python3 -c 'import os\n"
           "f = os.open(\"exec\", os.O_RDWR)\n"
           "for i in range(1010):\n"
           "    os.write(f, b\"echo x\")\n"
           "    assert os.read(f, 9) == b\"x\\n\"\n"
           "    assert os.read(f, 9) == b\"\"\n"
           "    if i == 5: old = os.open(\"execs/2/stdout\", os.O_RDONLY)\n"
           "while os.path.exists(\"execs/3\"): pass\n"
           /* What is open is read to its end, and then goes. */
           "print(os.pread(old, 9, 0), os.pread(old, 9, 2))\n"
           "print(os.path.exists(\"execs/2\"))\n"
           "os.close(old)\n"
           "while os.path.exists(\"execs/2\"): pass\n'\n"
           /* The one that runs stays, whatever its number. */
           "for i in $(seq 100); do [ $(ls execs | wc -l) = 1002 ] && break; "
           "sleep 0.05; done; ls execs | wc -l; ls execs | sort -n | "
           "sed -n 2,3p\n"
           "cat execs/1/status; cat execs/5/status 2>&1 | "
           "grep -o 'No such file'\n"
           "echo 'echo y' > exec; readlink execs/last\n"
           "echo KILL > execs/1/signal; cat execs/1/wait; echo true > exec\n"
           "d=$(echo $STATE/sessions/*/execs/1012.log)\n"
           "old() { ls ${d%/*} | grep -c '^[1-9][.]'; }\n"
           "for i in $(seq 100); do [ $(ls execs | wc -l) = 1001 ] && "
           "[ $(old) = 0 ] && break; sleep 0.05; done\n"
           "ls execs | wc -l; old; true",
        "1\nb'x\\n' b''\nTrue\n1002\n1\n12\nrunning\nNo such "
        "file\n1012\n137\n1001\n0\n");
}

static long daemon_rss_kib(void)
{
    char path[64];
    const char *text;
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)mnt.pid);
    text = text_of(path);
    at = strstr(text, "VmHWM:");
    assert_non_null(at);
    return strtol(at + 6, NULL, 10);
}

static void two_hundred_megabytes_of_output_cost_no_memory(void **state)
{
    static const char request[] =
        "{\"command\": \"yes 'a line of text that is not so short' | "
        "head -c 200000000; exit 3\"}";
    long before;

    (void)state;
    mnt_running();
    put_ok(in("exec"), "seq 100000");
    assert_true(strlen(text_of(in("exec.json"))) > 100);
    before = daemon_rss_kib();
    put_ok(in("exec.json"), request);
    assert_non_null(strstr(text_of(in("exec.json")),
                           "\"truncated\":true,\"total_lines\":5555556,"));
    assert_true(strlen(text_of(in("execs/2/result.json"))) > 100000);
    expect_shell("stat -c %s execs/2/stdout", "200000000\n");
    if (daemon_rss_kib() > before + 8 * 1024) {
        fail_msg("from %ld KiB to %ld KiB", before, daemon_rss_kib());
    }
}

static void background_commands_run_beside_the_queue(void **state)
{
    (void)state;
    expect_scripts(background, ARRAY_SIZE(background));
}

/* Whoever looked into /proc at the wrong moment would wait for itself. */
static void what_execve_closes_holds_nobody_up(void **state)
{
    (void)state;
    expect_scripts(closed_by_execve, ARRAY_SIZE(closed_by_execve));
}

static void signals_reach_the_command(void **state)
{
    (void)state;
    expect_scripts(signals, ARRAY_SIZE(signals));
}

static void a_pause_is_refused_while_a_command_runs(void **state)
{
    (void)state;
    if (mnt_scripts()) {
        skip(); /* Its engine has no pause. */
    }
    expect_scripts(pauses, ARRAY_SIZE(pauses));
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_pause_is_refused_while_a_command_runs),
    e2e_test(background_commands_run_beside_the_queue),
    e2e_test(signals_reach_the_command),
    e2e_test(what_execve_closes_holds_nobody_up),
    e2e_test_of("sh", a_timeout_takes_the_whole_tree_within_two_seconds),
    e2e_test(an_interrupted_close_ends_all_that_it_waits_for),
    e2e_test(the_newest_thousand_commands_stay),
    e2e_test_of("local", two_hundred_megabytes_of_output_cost_no_memory),
};

E2E_MAIN(tests)
