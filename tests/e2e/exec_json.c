/* Commands through `exec.json`: members, answers, errors, streaming writers. */
#include "tests/e2e/tools.h"

/* ask(): writes a request and reads its answer on one handle; no(): the errno
 * of a write that is refused, and of the close. */
#define PYTHON(text)                                                           \
    "python3 -c '\n"                                                           \
    "import base64, errno, json, os, random, sys, time\n"                      \
    "def rest(f):\n"                                                           \
    "    out = b\"\"\n"                                                        \
    "    while True:\n"                                                        \
    "        more = os.read(f, 65536)\n"                                       \
    "        if not more: return out\n"                                        \
    "        out += more\n"                                                    \
    "def ask(**doc):\n"                                                        \
    "    f = os.open(\"exec.json\", os.O_RDWR)\n"                              \
    "    os.write(f, json.dumps(doc).encode())\n"                              \
    "    out = json.loads(rest(f))\n"                                          \
    "    os.close(f)\n"                                                        \
    "    return out\n"                                                         \
    "def no(text):\n"                                                          \
    "    f = os.open(\"exec.json\", os.O_WRONLY)\n"                            \
    "    try:\n"                                                               \
    "        text = text if type(text) is bytes else text.encode()\n"          \
    "        while text: text = text[os.write(f, text):]\n"                    \
    "        os.close(f)\n"                                                    \
    "        return \"taken\"\n"                                               \
    "    except OSError as e:\n"                                               \
    "        return errno.errorcode[e.errno]\n" text "'\n"
#define NUMBERS "ls execs | tr '\\n' ' '\n"

static const struct script answers[] = {
    {"a success",
     PYTHON("a = ask(command=\"echo hi\")\n"
            "print(a[\"id\"], a[\"status\"], a[\"exit_code\"], a[\"success\"],"
            " repr(a[\"stdout\"]), repr(a[\"stderr\"]), a[\"encoding\"],"
            " a[\"truncated\"], a[\"total_lines\"], a[\"timed_out\"])\n"
            "print(\"hint\" in a, \"signal\" in a, \"raw_output\" in a)\n"
            "print(a[\"started_at\"][-1], 0 <= a[\"duration_ms\"] < 5000)\n"),
     "1 exited 0 True 'hi\\n' '' text False 1 False\n"
     "False False False\nZ True\n"},
    {"a failure",
     "printf '{\"command\": \"%sexit 3\"}' \"${ERR%?}\\\\n\" > "
     "exec.json\n" PYTHON(
         "a = json.load(open(\"exec.json\"))\n"
         "print(a[\"exit_code\"], a[\"success\"], repr(a[\"stderr\"]))\n"),
     "3 False 'err\\n'\n"},
    {"a signal",
     PYTHON("a = ask(command=os.environ[\"KILL9\"])\n"
            "print(a[\"status\"], a[\"exit_code\"], a[\"signal\"], "
            "a[\"hint\"][:16])\n"),
     "killed 137 KILL Killed (SIGKILL)\n"},
    {"argv, and its text",
     PYTHON("a = ask(argv=[\"echo\", \"a b\"])\n"
            "print(repr(a[\"stdout\"]))\n") "cat execs/1/command",
     "'a b\\n'\necho 'a b'\n"},
    {"a word that is no command",
     PYTHON("a = ask(command=\"no-such-word\")\n"
            "print(a[\"exit_code\"], a[\"hint\"][:17])\n"),
     "127 Command not found\n"},
    {"reading on a fresh handle gives the last one's answer",
     "echo '{\"command\": \"echo a\"}' > exec.json; echo 'echo b' > exec\n"
     "cmp exec.json exec.json; stat -c %s exec.json | cmp - <(wc -c < "
     "exec.json)\n" PYTHON("print(json.load(open(\"exec.json\"))[\"stdout\"])"
                           "\n"),
     "b\n\n"},
    {"reading before anything", "cat exec.json; " NUMBERS, ""},
    {"result.json is the answer with everything",
     "echo '{\"command\": \"echo a\", \"output_mode\": \"silent\"}' > "
     "exec.json\n"
     "cat exec.json > $T/a; cat execs/1/result.json > $T/b\n" PYTHON(
         "t = os.environ[\"T\"]\n"
         "a, b = (json.load(open(t + n)) for n in (\"/a\", \"/b\"))\n"
         "print(repr(b.pop(\"raw_output\")), a == b)\n") "test $(stat -c %s "
                                                         "execs/1/result.json)"
                                                         " = $(wc -c < $T/b)",
     "'a\\n' True\n"},
    {"the working directory",
     "echo true > exec; mkdir -p workspace/sub\n" PYTHON(
         "w = json.load(open(\"status.json\"))[\"workspace_path\"]\n"
         "for d in (\"sub\", w + \"/sub\", \"/\"):\n"
         "    out = ask(command=\"pwd\", cwd=d)[\"stdout\"]\n"
         "    print(out.replace(w, \"(w)\"), end=\"\")\n"),
     "(w)/sub\n(w)/sub\n/\n"},
    {"a timeout",
     PYTHON(
         "a = ask(command=\"echo a\\n\" + os.environ[\"NAP\"] * 12,"
         " timeout_ms=1000)\n"
         "print(a[\"status\"], a[\"exit_code\"], a[\"timed_out\"],"
         " a[\"success\"], repr(a[\"stdout\"]), a[\"hint\"],"
         " 1000 <= a[\"duration_ms\"] < 1000 + 3 * 2000)\n") "cat "
                                                             "execs/1/status "
                                                             "execs/1/"
                                                             "exit_code",
     "timeout 124 True False 'a\\n' Command timed out. True\ntimeout\n124\n"},
    {"two requests in one write are two commands",
     PYTHON("f = os.open(\"exec.json\", os.O_RDWR)\n"
            "os.write(f, b\"{\\\"command\\\": \\\"echo a\\\"}\" * 2 + "
            "b\"\\n{\\\"command\\\": \\\"echo b\\\"}\\n\")\n"
            "print(json.loads(rest(f))[\"stdout\"], end=\"\")\n"
            "os.close(f)\n") "cat execs/?/output; " NUMBERS,
     "b\na\na\nb\n1 2 3 last "},
    {"several on one handle, each read",
     PYTHON("f = os.open(\"exec.json\", os.O_RDWR)\n"
            "for c in \"abc\":\n"
            "    os.write(f, json.dumps({\"command\": \"echo \" + c}).encode())"
            "\n"
            "    print(json.loads(rest(f))[\"stdout\"], end=\"\")\n"),
     "a\nb\nc\n"},
    {"a write does not wait, a close does",
     PYTHON("f = os.open(\"exec.json\", os.O_WRONLY)\n"
            "t = time.monotonic()\n"
            "os.write(f, json.dumps({\"command\": os.environ[\"NAP\"] * 3})"
            ".encode())\n"
            "print(time.monotonic() - t < 2)\n"
            "os.close(f)\n"
            "print(time.monotonic() - t > 2)\n") "cat execs/1/status",
     "True\nTrue\nexited\n"},
};

static const struct script of_sh[] = {
    {"the environment",
     PYTHON("print(ask(command=\"echo $A-$B_2-${HOME:+home}\", env={\"A\":"
            " \"x y\", \"B_2\": \"\"})[\"stdout\"], end=\"\")\n"),
     "x y--home\n"},
    {"stdin as text",
     PYTHON("a = ask(command=\"od -An -tx1\", stdin=\"a\\u0000\\u00e9\\n\")\n"
            "print(a[\"stdout\"], end=\"\")\n"),
     " 61 00 c3 a9 0a\n"},
    {"stdin as base64, a megabyte of it",
     PYTHON("data = random.randbytes(1 << 20)\n"
            "a = ask(argv=[\"cat\"], output_mode=\"silent\","
            " stdin_base64=base64.b64encode(data).decode())\n"
            "print(a[\"encoding\"], base64.b64decode(a[\"stdout\"]) == "
            "data[:200], a[\"truncated\"])\n"
            "print(open(\"execs/1/stdout\", \"rb\").read() == data)\n"),
     "base64 True True\nTrue\n"},
    {"output that is no UTF-8 is base64 and says so",
     PYTHON("a = ask(command=\"printf \\\"a\\\\377\\\"; echo e >&2\")\n"
            "print(a[\"encoding\"], base64.b64decode(a[\"stdout\"]),"
            " base64.b64decode(a[\"stderr\"]))\n"),
     "base64 b'a\\xff' b'e\\n'\n"},
    {"escape sequences and progress bars",
     PYTHON("a = ask(argv=[\"printf\", r\"\\033[31mred\\033[0m\\n"
            "10%%\\r100%%\\r\\n\\033]0;t\\007x\"])\n"
            "print(repr(a[\"stdout\"]), a[\"total_lines\"],"
            " a[\"truncated\"])\n"),
     "'red\\n100%\\nx' 3 False\n"},
    {"every mode keeps its budget and says what is left out",
     PYTHON("for m, most in ((\"silent\", 200), (\"concise\", 2048),"
            " (\"normal\", 8192), (\"verbose\", 16384), (\"full\", 65536),"
            " (\"auto\", 384)):\n"
            "    a = ask(command=\"seq 100000\", output_mode=m)\n"
            "    s = a[\"stdout\"]\n"
            "    print(m, most - 100 < len(s) <= most, a[\"truncated\"],"
            " a[\"total_lines\"], s[:4] == \"1\\n2\\n\", s[-7:-1],"
            " \" bytes omitted ...]\" in s)\n") "stat -c %s execs/?/stdout | "
                                                "uniq",
     "silent True True 100000 True 100000 True\n"
     "concise True True 100000 True 100000 True\n"
     "normal True True 100000 True 100000 True\n"
     "verbose True True 100000 True 100000 True\n"
     "full True True 100000 True 100000 True\n"
     "auto True True 100000 True 100000 True\n588895\n"},
    {"a failure shows its error in the middle",
     PYTHON("a = ask(command=\"seq 50000; echo x: error: bad thing;"
            " seq 50000; exit 2\")\n"
            "print(\"error: bad thing\" in a[\"stdout\"],"
            " len(a[\"stdout\"]) <= 8192, a[\"truncated\"])\n"),
     "True True True\n"},
};

static const struct script of_local[] = {
    {"home is the workspace",
     PYTHON("print(ask(command=\"echo $HOME\")[\"stdout\"], end=\"\")\n"),
     "/workspace\n"},
};

static const struct script refusals[] = {
    {"what no more bytes can mend is refused by the write",
     PYTHON("for text in (\"[]\", \"x\", \"{]\", \"{\\\"a\\\" 1\", \"{,\", "
            "\"{\\\"a\\\": tru3\", \"{\\\"a\\\": 01\", \"{\\\"a\\\": \\\"\\n\","
            " b\"{\\\"a\\\": \\\"\\xff\", b\"\\0\", \"{}}\"):\n"
            "    print(no(text), end=\" \")\n") NUMBERS,
     "EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL EINVAL "
     "EINVAL "},
    {"requests that make no sense",
     PYTHON("for doc in ({}, {\"command\": \"true\", \"argv\": [\"true\"]},"
            " {\"command\": 1}, {\"command\": \"\"}, {\"command\": \" \\n\"},"
            " {\"command\": \"a\\0b\"}, {\"command\": None}, {\"argv\": []},"
            " {\"argv\": \"true\"}, {\"argv\": [\"\"]}, {\"argv\": [1]},"
            " {\"argv\": [\"a\", \"b\\0\"]},"
            " *({\"command\": \"true\", **more} for more in ("
            "{\"what\": 1}, {\"cwd\": 1}, {\"cwd\": \"\"}, {\"cwd\": \"a\\0\"},"
            " {\"env\": []}, {\"env\": {\"\": \"\"}}, {\"env\": {\"1\": \"\"}},"
            " {\"env\": {\"a=b\": \"\"}}, {\"env\": {\"a b\": \"\"}},"
            " {\"env\": {\"a\": 1}}, {\"env\": {\"a\": \"\\0\"}},"
            " {\"stdin\": 1}, {\"stdin_base64\": \"a\"},"
            " {\"stdin_base64\": \"YQ==YQ==\"}, {\"stdin_base64\": \"Y?==\"},"
            " {\"stdin\": \"\", \"stdin_base64\": \"\"}, {\"timeout_ms\": 0},"
            " {\"timeout_ms\": -1}, {\"timeout_ms\": 1.5},"
            " {\"timeout_ms\": \"1\"}, {\"timeout_ms\": True},"
            " {\"timeout_ms\": 1 << 60}, {\"output_mode\": \"loud\"},"
            " {\"output_mode\": 1}, {\"background\": 1},"
            " {\"background\": \"true\"}))):\n"
            "    r = no(json.dumps(doc))\n"
            "    if r != \"EINVAL\": print(doc, r)\n"
            "print(no(\"{\\\"command\\\": \\\"a\\\", \\\"command\\\": "
            "\\\"b\\\"}\"))\n") NUMBERS "tail -n 1 error | grep -c duplicate",
     "EINVAL\n1\n"},
    {"a request or a script that is too large",
     PYTHON("print(no(\"{\\\"command\\\": \\\"\" + \"x\" * (1 << 20) + "
            "\"x\\\"}\"))\n"
            "print(no(\"{\\\"stdin\\\": \\\"\" + \"x\" * (8 << 20)))\n"
            "print(no(\"{\\\"argv\\\": [\" + \"1,\" * 65537))\n") NUMBERS,
     "EFBIG\nEFBIG\nEINVAL\n"},
    {"a refused write poisons the handle",
     PYTHON("f = os.open(\"exec.json\", os.O_WRONLY)\n"
            "for text in (b\"{\\\"comm\", b\"\\n\", b\"{\\\"command\\\": "
            "\\\"true\\\"}\"):\n"
            "    try: print(os.write(f, text))\n"
            "    except OSError as e: print(e.strerror)\n"
            "try: os.close(f)\n"
            "except OSError as e: print(e.strerror)\n") NUMBERS,
     "6\nInvalid argument\nInvalid argument\nInvalid argument\n"},
    {"nothing of a refused write runs",
     PYTHON("a = \"{\\\"command\\\": \\\"echo ran > f\\\"}\"\n"
            "for text in (a + \" garbage\", a + a + \"}\", a + \"{}\","
            " a + \"{\\\"command\\\": 1}\"):\n"
            "    print(no(text))\n") NUMBERS "ls workspace",
     "EINVAL\nEINVAL\nEINVAL\nEINVAL\n"},
    {"incomplete at the flush",
     PYTHON("for text in (\"{\", \"{\\\"command\\\": \\\"true\\\"\","
            " \" {\\\"command\\\": \\\"a\"):\n"
            "    print(no(text))\n"
            "print(no(\" \\n\"), no(\"\"))\n") NUMBERS,
     "EINVAL\nEINVAL\nEINVAL\ntaken taken\n"},
    {"no other command's answer is read after it",
     "echo true > exec; printf '{\"command\":' > exec.json; "
     "cat exec.json exec 2>&1 | grep -c 'Invalid argument'; "
     "echo 'echo well' > exec; cat exec",
     "2\nwell\n"},
    {"a writer that was killed leaves nothing",
     PYTHON("if os.fork() == 0:\n"
            "    f = os.open(\"exec.json\", os.O_WRONLY)\n"
            "    os.write(f, b\"{\\\"command\\\": \\\"echo \")\n"
            "    os.kill(os.getpid(), 9)\n"
            "os.wait()\n") NUMBERS "cat error",
     ""},
    {"two writers on one handle never mix",
     PYTHON("f = os.open(\"exec.json\", os.O_WRONLY)\n"
            "os.write(f, b\"{\\\"command\\\": \\\"echo par\")\n"
            "if os.fork() == 0:\n"
            "    os.write(f, b\"{\\\"command\\\": \\\"echo child\\\"}\")\n"
            "    os.close(f)\n"
            "    os._exit(0)\n"
            "os.wait()\n"
            "os.write(f, b\"ent\\\"}\")\n"
            "os.close(f)\n") "cat execs/?/output",
     "child\nparent\n"},
};

static const struct script of_mem[] = {
    {"a command that cannot be run",
     "echo true > exec; echo 'errno ENOSPC' > $CONTROL/exec@$(basename "
     "$S)\n" PYTHON(
         "for more in ({}, {\"background\": True}):\n"
         "    f = os.open(\"exec.json\", os.O_RDWR)\n"
         "    os.write(f, json.dumps({\"command\": \"true\", **more})"
         ".encode())\n"
         "    a = rest(f)\n"
         "    try: print(os.close(f))\n"
         "    except OSError as e: print(errno.errorcode[e.errno])\n"
         "    size = os.stat(\"exec.json\").st_size\n"
         "    print(a == open(\"exec.json\", \"rb\").read(), size == len(a))\n"
         "    a = json.loads(a)\n"
         "    print(a[\"id\"], a[\"status\"], a[\"success\"], a[\"exit_code\"],"
         " a[\"error\"] != \"\")\n") "cat execs/?/status; "
                                     "grep -c '\"status\":\"failed\"' "
                                     "execs/2/result.json; cat exec 2>&1 || :",
     "ENOSPC\nTrue True\n2 failed False None True\n"
     "ENOSPC\nTrue True\n3 failed False None True\n"
     "exited\nfailed\nfailed\n1\ncat: exec: No space left on device\n"},
    {"an engine that gives commands no input",
     PYTHON("print(no(json.dumps({\"command\": \"true\", \"stdin\": \"\"})))\n")
         NUMBERS,
     "ENOTSUP\n"},
};

static const struct script writers[] = {
    {"one byte at a time",
     PYTHON("f = os.open(\"exec.json\", os.O_RDWR)\n"
            "for c in json.dumps({\"command\": \"echo \\u00e9\\U0001f600\"},"
            " ensure_ascii=False).encode(): os.write(f, bytes([c]))\n"
            "print(json.loads(rest(f))[\"stdout\"], end=\"\")\n"),
     "\303\251\360\237\230\200\n"},
    {"pretty-printed, with a newline at the end",
     PYTHON("with open(\"exec.json\", \"w\") as f:\n"
            "    json.dump({\"command\": \"echo hi\"}, f, indent=4)\n"
            "    f.write(\"\\n\")\n") "cat execs/1/stdout",
     "hi\n"},
    {"json.dump, unbuffered",
     PYTHON("with open(\"exec.json\", \"wb\", 0) as f:\n"
            "    for part in json.JSONEncoder(indent=1).iterencode("
            "{\"command\": \"echo hi\"}): f.write(part.encode())\n") "cat "
                                                                     "execs/1/"
                                                                     "stdout",
     "hi\n"},
    {"a here-document",
     "cat > exec.json <<'END'\n{\n  \"command\": \"echo hi\"\n}\nEND\n"
     "cat execs/1/stdout",
     "hi\n"},
    {"a shell builtin, cp, tee and dd",
     "echo '{\"command\": \"echo hi\"}' > $T/r; printf '%s' \"$(cat $T/r)\" > "
     "exec.json; cp $T/r exec.json; tee exec.json < $T/r > /dev/null; "
     "dd if=$T/r of=exec.json bs=3 2> /dev/null; " NUMBERS "cat execs/?/output",
     "1 2 3 4 last hi\nhi\nhi\nhi\n"},
    {"node",
     "command -v node > /dev/null || { echo hi; exit; }\n"
     "node -e 'const fs = require(\"fs\");\n"
     "fs.writeFileSync(\"exec.json\", JSON.stringify({command: \"echo "
     "hi\"}));\n"
     "process.stdout.write(JSON.parse(fs.readFileSync(\"exec.json\")).stdout)'",
     "hi\n"},
    {"node streams",
     "command -v node > /dev/null || { echo hi; exit; }\n"
     "node -e 'const s = require(\"fs\").createWriteStream(\"exec.json\");\n"
     "s.write(\"{\\\"comm\"); s.end(\"and\\\": \\\"echo hi\\\"}\\n\");\n"
     "s.on(\"close\", () => process.stdout.write("
     "require(\"fs\").readFileSync(\"execs/1/stdout\")))'",
     "hi\n"},
};

/* The first are cut at every byte, the others somewhere. */
static const struct script cuts[] = {
    {"random documents in two pieces",
     PYTHON("random.seed(7)\n"
            "def word(): return \"\".join(random.choice(\"ab\\\\\\\" {}[],:/\\n"
            "\\t\\u00e9\\u20ac\\U0001f600\") for _ in range("
            "random.randrange(6)))\n"
            "f = os.open(\"exec.json\", os.O_RDWR)\n"
            "made = 0\n"
            "for i in range(50):\n"
            "    doc = {\"argv\": [\"true\"] + [word() for _ in range("
            "random.randrange(3))], \"timeout_ms\": random.randrange(60000, "
            "10**7), \"env\": {\"A\" + str(j): word() for j in range("
            "random.randrange(3))}, \"output_mode\": random.choice([\"auto\", "
            "\"full\"])}\n"
            "    text = json.dumps(doc, ensure_ascii=random.random() < 0.5, "
            "indent=random.choice([None, 1]))\n"
            "    text = text.encode()\n"
            "    for at in range(1, len(text)) if i < 3 else "
            "[random.randrange(1, len(text))]:\n"
            "        os.write(f, text[:at])\n"
            "        os.write(f, text[at:] + b\"\\n\")\n"
            "        made += 1\n"
            "a = json.loads(rest(f))\n"
            "print(a[\"id\"] == made, a[\"success\"])\n"
            "os.close(f)\n"),
     "True True\n"},
};

static void an_answer_tells_how_the_command_ended(void **state)
{
    (void)state;
    expect_scripts(answers, ARRAY_SIZE(answers));
}

static void a_request_is_obeyed_in_all_its_members(void **state)
{
    (void)state;
    expect_scripts(of_sh, ARRAY_SIZE(of_sh));
}

static void a_command_has_the_home_of_its_sandbox(void **state)
{
    (void)state;
    expect_scripts(of_local, ARRAY_SIZE(of_local));
}

static void a_bad_request_is_refused_and_takes_no_number(void **state)
{
    (void)state;
    expect_scripts(refusals, ARRAY_SIZE(refusals));
}

static void what_the_engine_cannot_do_is_refused(void **state)
{
    (void)state;
    expect_scripts(of_mem, ARRAY_SIZE(of_mem));
}

static void every_writer_is_understood(void **state)
{
    (void)state;
    expect_scripts(writers, ARRAY_SIZE(writers));
}

static void a_request_may_come_in_any_pieces(void **state)
{
    (void)state;
    expect_scripts(cuts, ARRAY_SIZE(cuts));
}

static const struct CMUnitTest tests[] = {
    e2e_test(an_answer_tells_how_the_command_ended),
    e2e_test_of("sh", a_request_is_obeyed_in_all_its_members),
    e2e_test_of("local", a_command_has_the_home_of_its_sandbox),
    e2e_test(a_bad_request_is_refused_and_takes_no_number),
    e2e_test_of("mem", what_the_engine_cannot_do_is_refused),
    e2e_test(every_writer_is_understood),
    e2e_test(a_request_may_come_in_any_pieces),
};

E2E_MAIN(tests)
