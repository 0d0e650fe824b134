/* Commands through `exec` as shells and languages write them. */
#include "tests/e2e/tools.h"

#define PYTHON(text) "python3 -c '\nimport os, sys, time, signal\n" text "'\n"
/* What there is to run: the numbers, on one line. */
#define NUMBERS "ls execs | tr '\\n' ' '\n"

static const struct script shells[] = {
    {"echo", "echo 'echo hi' > exec; cat exec", "hi\n"},
    {"echo appending", "echo 'echo hi' >> exec; cat exec", "hi\n"},
    {"printf without a newline", "printf 'echo hi' > exec; cat exec", "hi\n"},
    {"a here-document of a shell builtin",
     "read -r -d '' x <<'END'\n"
     "echo a\n"
     "echo b\n"
     "END\n"
     "printf '%s\\n' \"$x\" > exec; cat exec",
     "a\nb\n"},
    {"cp", "echo 'echo hi' > $T/s; cp $T/s exec; cat exec", "hi\n"},
    {"tee", "echo 'echo hi' | tee exec; cat exec", "echo hi\nhi\n"},
    {"dd", "echo 'echo hi' | dd of=exec 2>/dev/null; cat exec", "hi\n"},
    {"other shells",
     "dash -c 'echo \"echo hi\" > exec'; cat exec; "
     "dash -c 'echo \"echo ho\" >> exec; cat exec'",
     "hi\nho\n"},
    {"two programs in a group are two scripts",
     "echo 'echo a' > $T/a; echo 'echo b' > $T/b\n"
     "{ cat $T/a; cat $T/b; } > exec\n" NUMBERS "cat execs/?/output",
     "1 2 last a\nb\n"},
    {"builtins in a group are one script, whoever else holds the handle",
     "{ printf 'echo a\\n'; (exit 0); /bin/true; printf 'echo b\\n'; } > exec"
     "\n" NUMBERS "cat exec",
     "1 last a\nb\n"},
    {"several on one handle, one after another",
     "exec 3<>exec\n"
     "printf 'echo a\\necho a2\\n' >&3; cat <&3\n"
     "echo 'echo b' >&3; cat <&3\n"
     "exec 3>&-\n" NUMBERS,
     "a\na2\nb\n1 2 last "},
    {"a program that inherits the handle and ends runs nothing",
     "{ /bin/true; sleep 0.1; (:); } > exec; " NUMBERS, ""},
    {"whitespace alone", "echo > exec; printf ' \\t\\n' > exec; " NUMBERS, ""},
    {"an empty redirection", ": > exec; " NUMBERS "cat exec", ""},
    {"touch starts nothing", "touch exec; " NUMBERS "cat status", "absent\n"},
    {"reading before anything", "cat exec; " NUMBERS "cat status", "absent\n"},
    {"a file that only `cat` would see changing",
     "echo 'echo 1' > exec; cat exec exec; echo 'echo 22' > exec; cat exec",
     "1\n1\n22\n"},
};

static const struct script of_sh[] = {
    {"a here-document",
     "cat > exec <<'END'\n"
     "for i in 1 2; do\n"
     "    printf '%s\\n' \"$i\" '\\n' \"\\\\\" `echo x`\n"
     "done\n"
     "END\n"
     "cat exec",
     "1\n\\n\n\\\nx\n2\n\\n\n\\\nx\n"},
    {"two shell commands in a group are two scripts when each is a program",
     "echo 'x=1; echo a' > $T/a; echo 'echo b$x' > $T/b\n"
     "{ cat $T/a; cat $T/b; } > exec\n" NUMBERS "cat execs/?/output",
     "1 2 last a\nb\n"},
    {"one program that writes two files makes one script",
     "echo 'x=1; echo a' > $T/a; echo 'echo b$x' > $T/b\n"
     "cat $T/a $T/b > exec\n" NUMBERS "cat execs/?/output",
     "1 last a\nb1\n"},
    {"builtins in a group are one script, whoever else holds the handle",
     "{ printf 'x=1; echo a\\n'; (exit 0); /bin/true; printf 'echo b$x\\n'; }"
     " > exec\n" NUMBERS "cat exec",
     "1 last a\nb1\n"},
    {"a signal's exit code",
     "echo 'kill -9 $$' > exec; echo 'kill $$' > exec\n"
     "cat execs/?/exit_code execs/?/status",
     "137\n143\nkilled\nkilled\n"},
    {"a script with a syntax error",
     "echo 'if' > exec; cat execs/last/status; test -s execs/1/stderr && "
     "grep -vx 0 execs/1/exit_code > /dev/null && echo y",
     "exited\ny\n"},
    {"stdout and stderr apart and together",
     "echo 'echo o1; sleep 0.1; echo e1 >&2; sleep 0.1; echo o2' > exec\n"
     "cat execs/1/stdout; echo -; cat execs/1/stderr; echo -; cat exec",
     "o1\no2\n-\ne1\n-\no1\ne1\no2\n"},
    {"bytes are exact",
     "echo \"printf '\\\\000\\\\377\\\\r\\\\n\\\\303'\" > exec; "
     "od -An -tx1 exec; od -An -tx1 execs/1/stdout",
     " 00 ff 0d 0a c3\n 00 ff 0d 0a c3\n"},
    {"where a command runs",
     "echo 'pwd; umask; cat; echo end' > exec\n"
     "W=$(grep -o '\"workspace_path\": *\"[^\"]*' status.json)\n"
     "sed \"s|^${W##*\\\"}$|(workspace)|\" exec",
     "(workspace)\n0022\nend\n"},
};

static void sh_runs_a_script_as_it_was_written(void **state)
{
    (void)state;
    expect_scripts(of_sh, ARRAY_SIZE(of_sh));
}

static void every_shell_form_runs_what_it_says(void **state)
{
    (void)state;
    expect_scripts(shells, ARRAY_SIZE(shells));
}

static const struct script pythons[] = {
    {"with close",
     PYTHON(
         "with open(\"exec\", \"w\") as f: f.write(\"echo hi\\n\")\n") "cat "
                                                                       "exec",
     "hi\n"},
    {"without close",
     PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
            "os.write(f, b\"echo hi\\n\")\n") "cat execs/1/wait exec",
     "0\nhi\n"},
    {"a threaded program that exits without close",
     PYTHON("import threading\n"
            "threading.Thread(target=time.sleep, args=(60,), "
            "daemon=True).start()\n"
            "f = os.open(\"exec\", os.O_WRONLY)\n"
            "os.write(f, b\"echo hi\\n\")\n") "cat execs/1/wait exec",
     "0\nhi\n"},
    {"the text in many writes",
     PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
            "for c in b\"echo hi\\n\": os.write(f, bytes([c]))\n"
            "os.close(f)\n") NUMBERS "cat exec",
     "1 last hi\n"},
    {"killed before it closed",
     "exec 2>/dev/null\n" PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                                 "os.write(f, b\"touch half-writ\")\n"
                                 "os.kill(os.getpid(), signal.SIGKILL)\n")
         NUMBERS "ls workspace",
     ""},
    {"ended by TERM before it closed",
     "exec 2>/dev/null\n" PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                                 "os.write(f, b\"touch half-writ\")\n"
                                 "os.kill(os.getpid(), signal.SIGTERM)\n")
         NUMBERS,
     ""},
    {"a killed threaded writer",
     "exec 2>/dev/null\n" PYTHON(
         "import threading\n"
         "threading.Thread(target=time.sleep, args=(60,), "
         "daemon=True).start()\n"
         "f = os.open(\"exec\", os.O_WRONLY)\n"
         "os.write(f, b\"touch half-writ\")\n"
         "os.kill(os.getpid(), signal.SIGKILL)\n") NUMBERS,
     ""},
    {"a NUL byte poisons the handle",
     PYTHON("f = os.open(\"exec\", os.O_RDWR)\n"
            "os.write(f, b\"echo a\\n\")\n"
            "for text in (b\"echo \\0\", b\"echo b\\n\"):\n"
            "    try: print(os.write(f, text))\n"
            "    except OSError as e: print(e.strerror)\n"
            "try: os.close(f)\n"
            "except OSError as e: print(e.strerror)\n") NUMBERS,
     "Invalid argument\nInvalid argument\nInvalid argument\n"},
    {"more than 1 MiB poisons the handle",
     PYTHON("f = os.open(\"exec\", os.O_RDWR)\n"
            "for text in [b\":\\n\" * 65536] * 8 + [b\" \", b\"x\"]:\n"
            "    try: assert os.write(f, text) == len(text)\n"
            "    except OSError as e: print(e.strerror)\n"
            "try: os.close(f)\n"
            "except OSError as e: print(e.strerror)\n") NUMBERS,
     "File too large\nFile too large\nFile too large\n"},
    {"one write of which only a part is taken fails at the close",
     PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
            "n = os.write(f, b\":\\n\" * (2 << 20))\n"
            "print(0 < n < 4 << 20)\n"
            "try: os.close(f)\n"
            "except OSError as e: print(e.strerror)\n") NUMBERS,
     "True\nFile too large\n"},
    {"text of two processes on one handle never mixes",
     PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
            "os.write(f, b\"echo par\")\n"
            "if os.fork() == 0:\n"
            "    os.write(f, b\"echo child\\n\")\n"
            "    os.close(f)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "os.write(f, b\"ent\\n\")\n"
            "os.close(f)\n") NUMBERS "cat execs/?/output",
     "1 2 last child\nparent\n"},
    {"exit with the handle open waits a second at most",
     PYTHON("t = time.monotonic()\n"
            "if os.fork() == 0:\n"
            "    f = os.open(\"exec\", os.O_WRONLY)\n"
            "    os.write(f, os.environ[\"NAP\"].encode() * 6 + b\"echo "
            "done\\n\")\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "print(time.monotonic() - t < 3)\n") "cat execs/1/status\n"
                                                 "cat execs/1/wait exec",
     "True\nrunning\n0\ndone\n"},
    {"reading on the writing handle streams live",
     PYTHON(
         "f = os.open(\"exec\", os.O_RDWR)\n"
         "os.write(f, b\"echo a\\n\" + os.environ[\"NAP\"].encode() * 3 + "
         "b\"echo b\\n\")\n"
         "print(os.read(f, 100), open(\"execs/1/status\").read(), end=\"\")\n"
         "print(os.read(f, 100), os.read(f, 100))\n"),
     "b'a\\n' running\nb'b\\n' b''\n"},
    {"a fresh handle follows a running command",
     "printf \"echo a\\n${NAP}echo b\" > exec &\n"
     "until [ -e execs/1 ] && [ -s execs/1/output ]; do sleep 0.01; done\n"
     "cat exec; cat execs/1/status; wait",
     "a\nb\nexited\n"},
};

static void every_python_form_runs_what_it_says(void **state)
{
    (void)state;
    expect_scripts(pythons, ARRAY_SIZE(pythons));
}

static const struct script records[] = {
    {"exit codes",
     "for c in 0 1 3 255; do echo \"exit $c\" > exec || echo no; done\n"
     "cat execs/?/exit_code execs/?/status",
     "0\n1\n3\n255\nexited\nexited\nexited\nexited\n"},
    {"a word that is no command",
     "echo no-such-word > exec; cat execs/last/exit_code", "127\n"},
    {"last points to the newest",
     "echo true > exec; readlink execs/last; echo true > exec; "
     "readlink execs/last",
     "1\n2\n"},
    {"wait is found by name and not listed",
     "echo 'exit 5' > exec; ls execs/1 | grep -c wait; cat execs/1/wait",
     "0\n5\n"},
    {"a record's files",
     "echo true > exec; for f in command status stdout stderr output "
     "exit_code error; do test -f execs/1/$f || echo no $f; done",
     ""},
    {"the command's text as it was written",
     "printf '  echo \"a b\"  \\\\\\n  c\\n\\n' > $T/s; cat $T/s > exec; "
     "cmp $T/s execs/1/command",
     ""},
    {"no exit code while it runs",
     "printf \"$NAP${NAP}exit 2\" > exec &\n"
     "until [ \"$(cat execs/1/status 2>/dev/null)\" = running ]; do :; done\n"
     "wc -c < execs/1/exit_code; cat execs/1/wait; wait",
     "0\n2\n"},
    {"numbers are not files",
     "echo true > exec; ls -d execs/0 execs/01 "
     "execs/2 execs/-1 execs/1x execs/99999999999999999999 2>/dev/null; "
     "ls -d execs/1",
     "execs/1\n"},
};

static void a_record_tells_how_it_ended(void **state)
{
    (void)state;
    expect_scripts(records, ARRAY_SIZE(records));
}

static void a_script_of_one_mebibyte_runs(void **state)
{
    (void)state;
    expect_shell("{ yes : | head -c 1048566; echo 'echo end1'; } > $T/s\n"
                 "stat -c %s $T/s; cat $T/s > exec; cmp $T/s execs/1/command; "
                 "cat exec",
                 "1048576\nend1\n");
}

static void ten_megabytes_of_output_are_whole(void **state)
{
    (void)state;
    expect_shell("echo 'seq 1500000' > exec; seq 1500000 | cmp - exec; "
                 "cmp exec execs/1/stdout; stat -c %s execs/1/output",
                 "10888896\n");
}

static void two_hundred_commands_run_in_order(void **state)
{
    (void)state;
    expect_shell("for i in $(seq 200); do in_append all $i; "
                 "done; seq 200 | cmp - workspace/all; readlink execs/last; "
                 "ls execs | wc -l",
                 "200\n201\n");
}

static void commands_of_one_session_do_not_overlap(void **state)
{
    (void)state;
    expect_shell("for i in 1 2 3 4 5 6 7 8; do\n"
                 "  echo 'mkdir lock || echo overlap; sleep 0.05; rmdir lock' "
                 "> exec &\n"
                 "done; wait; cat execs/?/output",
                 "");
}

static void commands_of_two_sessions_do(void **state)
{
    (void)state;
    expect_shell(
        "mkdir ../par; echo true > exec; echo true > ../par/exec\n"
        "for d in . ../par; do printf \"$NAP$NAP\" > $d/exec & done\n"
        "until [ \"$(cat {.,../par}/execs/2/status 2>/dev/null | tr '\\n' .)\" "
        "= running.running. ]; do sleep 0.01; done; wait; "
        "cat {.,../par}/execs/2/wait",
        "0\n0\n");
}

static void a_process_left_behind_holds_up_nobody(void **state)
{
    (void)state;
    expect_shell("echo 'sleep 20 & echo hi' > exec; cat exec; "
                 "echo '(sleep 0.3; echo late) & echo now' > exec; cat exec\n"
                 "for i in $(seq 200); do grep -q late execs/2/output && "
                 "break; sleep 0.02; done; cat execs/2/output",
                 "hi\nnow\nnow\nlate\n");
}

static const struct CMUnitTest tests[] = {
    e2e_test_of("sh", sh_runs_a_script_as_it_was_written),
    e2e_test(every_shell_form_runs_what_it_says),
    e2e_test(every_python_form_runs_what_it_says),
    e2e_test(a_record_tells_how_it_ended),
    e2e_test(a_script_of_one_mebibyte_runs),
    e2e_test_of("sh", ten_megabytes_of_output_are_whole),
    e2e_test(two_hundred_commands_run_in_order),
    e2e_test_of("sh", commands_of_one_session_do_not_overlap),
    e2e_test(commands_of_two_sessions_do),
    e2e_test_of("local", a_process_left_behind_holds_up_nobody),
};

E2E_MAIN(tests)
