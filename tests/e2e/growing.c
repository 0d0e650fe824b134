/*
 * Files that grow: what tools and languages see of a command's output while it
 * runs and after, and what wakes those who poll.
 */
#include "tests/e2e/tools.h"

/* Start a command that says `a`, and `b` and `c` after a while each, and wait
 * until its first word is there. There is time to start a program before `b`
 * in the first, and no time between the words in the last, for what looks at
 * them when all is over. */
#define BEGUN_AND(wait, next)                                                  \
    "printf \"echo a\\n" wait "echo b\\n" next "echo c\\n\" > exec &\n"        \
    "until [ -s execs/1/output ]; do sleep 0.01; done\n"
#define BEGUN_LONG    BEGUN_AND("${NAP}${NAP}${NAP}", "${NAP}")
#define BEGUN         BEGUN_AND("${NAP}", "${NAP}")
#define BEGUN_AT_ONCE BEGUN_AND("", "")
/* A builtin in the background ends with the handle open: it does not wait. */
#define OVER "read -r code < execs/1/wait\n"
#define PYTHON(text)                                                           \
    "python3 -c 'import asyncio, os, select, sys, time\n" text "'\n"

static const struct script tools[] = {
    {"tail -f from the start to the end",
     BEGUN "timeout 10 tail -n +1 -s 0.05 -f execs/1/output > $T/out & t=$!\n"
           "until grep -qs a $T/out; do sleep 0.01; done; cat execs/1/status\n"
           "until grep -q c $T/out; do sleep 0.01; done; kill $t; cat $T/out",
     "running\na\nb\nc\n"},
    {"tail -f --pid ends with whoever waits for the command",
     BEGUN "cat execs/1/wait > /dev/null & t=$!\n"
           "timeout 10 tail -n +1 -s 0.05 --pid=$t -f execs/1/stdout\n"
           "kill -0 $t 2> /dev/null || echo gone",
     "a\nb\nc\ngone\n"},
    {"wc -c and stat agree with what can be read",
     BEGUN_LONG "wc -c < execs/1/output; stat -c %s execs/1/output\n"
                "cat execs/1/wait; wc -c < execs/1/output\n"
                "stat -c %s execs/1/output execs/1/stdout execs/1/stderr exec",
     "2\n2\n0\n6\n6\n6\n0\n6\n"},
    {"cp and cat take what is there, and do not wait",
     BEGUN_LONG "cp execs/1/output $T/o; cat $T/o execs/1/output\n"
                "cat execs/1/status; " OVER "cp execs/1/output $T/o; cat $T/o",
     "a\na\nrunning\na\nb\nc\n"},
    {"tail of exec, which reads the start twice",
     BEGUN_AT_ONCE OVER "tail exec; tail -n 2 exec; tail -c 2 exec\n",
     "a\nb\nc\nb\nc\nc\n"},
    {"head, tail -c, dd and cmp",
     BEGUN_AT_ONCE OVER
     "tail -c 2 execs/1/output; head -c 2 execs/1/output\n"
     "dd if=execs/1/output bs=1 skip=2 count=2 2> /dev/null\n"
     "printf 'a\\nb\\nc\\n' | cmp - execs/1/output && echo same",
     "c\na\nb\nsame\n"},
    {"tar and rsync have it whole",
     BEGUN_AT_ONCE OVER "tar cf - execs/1/output | tar xOf -\n"
                        "rsync execs/1/output $T/r; cat $T/r",
     "a\nb\nc\na\nb\nc\n"},
};

static const struct script pythons[] = {
    {"a loop of reads on one handle",
     BEGUN PYTHON("f = os.open(\"execs/1/output\", os.O_RDONLY)\n"
                  "got = b\"\"\n"
                  "while True:\n"
                  "    ended = open(\"execs/1/status\").read() != \"running\\n"
                  "\"\n"
                  "    part = os.read(f, 100)\n"
                  "    got += part\n"
                  "    if ended and not part: break\n"
                  "    time.sleep(0.01)\n"
                  "print(got)\n"),
     "b'a\\nb\\nc\\n'\n"},
    {"exec once more from its start, then a newer one",
     BEGUN_AT_ONCE OVER PYTHON(
         "f = open(\"exec\")\n"
         "print(f.read(), f.seek(0), f.read(), f.read())\n"
         "open(\"exec\", \"w\").write(\"echo d\")\n"
         "print(f.seek(0), f.read())\n"),
     "a\nb\nc\n 0 a\nb\nc\n \n0 d\n\n"},
    {"exec.json once more from its start",
     BEGUN_AT_ONCE OVER PYTHON(
         "f = open(\"exec.json\")\n"
         "one = f.read()\n"
         "print(len(one) > 20, f.seek(0), f.read() == one)\n"),
     "True 0 True\n"},
    {"seeking to the end",
     BEGUN_LONG PYTHON(
         "f = open(\"execs/1/output\", \"rb\")\n"
         "print(f.seek(0, 2), f.read())\n"
         "open(\"execs/1/wait\").read()\n"
         "print(f.read(), f.seek(0, 2), f.seek(-2, 2), f.read())\n"),
     "2 b''\nb'b\\nc\\n' 6 4 b'c\\n'\n"},
    {"readline as it grows",
     BEGUN PYTHON("f = open(\"execs/1/output\")\n"
                  "lines = []\n"
                  "while len(lines) < 3:\n"
                  "    line = f.readline()\n"
                  "    if line: lines.append(line)\n"
                  "    else: time.sleep(0.01)\n"
                  "print(lines, repr(f.readline()))\n"),
     "['a\\n', 'b\\n', 'c\\n'] ''\n"},
    {"shutil, pathlib and getsize after the end",
     BEGUN_AT_ONCE OVER PYTHON(
         "import pathlib, shutil\n"
         "shutil.copy(\"execs/1/output\", os.environ[\"T\"] + \"/c\")\n"
         "print(repr(pathlib.Path(os.environ[\"T\"] + \"/c\").read_text()),\n"
         "      os.path.getsize(\"execs/1/output\"))\n"),
     "'a\\nb\\nc\\n' 6\n"},
};

#define NODE(text) "node -e 'const fs = require(\"fs\");\n" text "'\n"

static const struct script nodes[] = {
    {"what is there, and all of it after the end",
     BEGUN_LONG NODE(
         "const part = fs.readFileSync(\n"
         "    \"execs/1/output\", \"utf8\");\n"
         "console.log([\"a\\n\", \"a\\nb\\n\"].includes(part));\n"
         "fs.readFileSync(\"execs/1/wait\");\n"
         "console.log(JSON.stringify(fs.readFileSync(\n"
         "    \"execs/1/output\", \"utf8\")));\n"
         "fs.copyFileSync(\"execs/1/output\", process.env.T + \"/c\");\n"
         "console.log(fs.readFileSync(process.env.T + \"/c\").length);"),
     "true\n\"a\\nb\\nc\\n\"\n6\n"},
    {"a stream of `exec` follows to the end",
     BEGUN NODE("let s = \"\"; fs.createReadStream(\"exec\")\n"
                "    .on(\"data\", (d) => { s += d; })\n"
                "    .on(\"end\", () => console.log(JSON.stringify(s)));"),
     "\"a\\nb\\nc\\n\"\n"},
};

static const struct script polls[] = {
    {"poll, select and epoll on an output that grows",
     BEGUN_LONG PYTHON(
         "f = os.open(\"execs/1/output\", os.O_RDONLY)\n"
         "e = select.epoll(); e.register(f, select.EPOLLIN)\n"
         "p = select.poll(); p.register(f, select.POLLIN)\n"
         "def quiet(): return (p.poll(0), e.poll(0),\n"
         "    select.select([f], [], [], 0)[0])\n"
         "assert p.poll(20000) and e.poll(5) and select.select([f], [], [], 5)"
         "[0]\n"
         "print(os.read(f, 100), quiet())\n"
         "t = time.monotonic()\n"
         "assert p.poll(20000); print(os.read(f, 100), quiet())\n"
         "assert time.monotonic() - t < 4.5\n"
         "assert e.poll(5); print(os.read(f, 100))\n"
         "assert select.select([f], [], [], 5)[0]; print(os.read(f, 100))\n"
         "print(open(\"execs/1/status\").read())\n"),
     "b'a\\n' ([], [], [])\nb'b\\n' ([], [], [])\nb'c\\n'\nb''\nexited\n\n"},
    {"poll on wait, from before its end",
     BEGUN_LONG PYTHON("f = os.open(\"execs/1/wait\", os.O_RDONLY)\n"
                       "p = select.poll(); p.register(f, select.POLLIN)\n"
                       "print(p.poll(0), len(p.poll(20000)), os.read(f, 9),\n"
                       "    open(\"execs/1/status\").read())\n"),
     "[] 1 b'0\\n' exited\n\n"},
    {"asyncio on an output and on the end",
     BEGUN_LONG PYTHON(
         "async def main():\n"
         "    loop = asyncio.get_running_loop()\n"
         "    end = loop.create_future()\n"
         "    got = []\n"
         "    f = os.open(\"execs/1/output\", os.O_RDONLY)\n"
         "    w = os.open(\"execs/1/wait\", os.O_RDONLY)\n"
         "    def more():\n"
         "        part = os.read(f, 100)\n"
         "        if part: got.append(part)\n"
         "        else: loop.remove_reader(f)\n"
         "    def over():\n"
         "        loop.remove_reader(w); end.set_result(os.read(w, 9))\n"
         "    loop.add_reader(f, more); loop.add_reader(w, over)\n"
         "    code = await asyncio.wait_for(end, 10)\n"
         "    while loop.remove_reader(f) and b\"c\\n\" not in got: more()\n"
         "    print(got, code)\n"
         "asyncio.run(main())\n"),
     "[b'a\\n', b'b\\n', b'c\\n'] b'0\\n'\n"},
    {"poll on events as lines come",
     "echo true > exec\n" PYTHON(
         "f = os.open(\"events\", os.O_RDONLY)\n"
         "p = select.poll(); p.register(f, select.POLLIN)\n"
         "text = b\"\"\n"
         "while p.poll(0): text += os.read(f, 65536)\n"
         "assert text.count(b\"exec.ended\") == 1, text\n"
         "if os.fork() == 0:\n"
         "    time.sleep(0.2)\n"
         "    with open(\"exec\", \"w\") as e: e.write(\"true\")\n"
         "    os._exit(0)\n"
         "while text.count(b\"exec.ended\") < 2:\n"
         "    assert p.poll(20000)\n"
         "    text += os.read(f, 65536)\n"
         "os.wait()\n"
         "assert text == open(\"events\", \"rb\").read()\n"),
     ""},
};

static const struct script poll_status[] = {
    {"poll on status as it changes",
     "echo true > exec\n" PYTHON(
         "f = os.open(\"status\", os.O_RDONLY)\n"
         "p = select.poll(); p.register(f, select.POLLIN | select.POLLPRI)\n"
         "print(os.read(f, 99), p.poll(0))\n"
         "if os.fork() == 0:\n"
         "    time.sleep(0.2)\n"
         "    open(\"status\", \"w\").write(\"paused\"); os._exit(0)\n"
         "word = b\"\"\n"
         "while word != b\"paused\\n\":\n"
         "    assert p.poll(20000)\n"
         "    word = os.pread(f, 99, 0)\n"
         "os.wait(); print(word, p.poll(0))\n"),
     "b'running\\n' []\nb'paused\\n' []\n"},
};

static void tools_see_an_output_grow(void **state)
{
    (void)state;
    expect_scripts(tools, ARRAY_SIZE(tools));
}

static void python_sees_an_output_grow(void **state)
{
    (void)state;
    expect_scripts(pythons, ARRAY_SIZE(pythons));
}

static void node_sees_an_output_grow(void **state)
{
    (void)state;
    if (!tools_have_node()) {
        skip();
    }
    expect_scripts(nodes, ARRAY_SIZE(nodes));
}

static void whoever_polls_is_woken(void **state)
{
    (void)state;
    expect_scripts(polls, ARRAY_SIZE(polls));
}

static void whoever_polls_status_is_woken(void **state)
{
    (void)state;
    if (mnt_scripts()) {
        skip(); /* Its engine has no pause. */
    }
    expect_scripts(poll_status, ARRAY_SIZE(poll_status));
}

static const struct CMUnitTest tests[] = {
    e2e_test(whoever_polls_status_is_woken), e2e_test(tools_see_an_output_grow),
    e2e_test(python_sees_an_output_grow),    e2e_test(node_sees_an_output_grow),
    e2e_test(whoever_polls_is_woken),
};

E2E_MAIN(tests)
