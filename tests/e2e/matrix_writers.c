/* The rows of the matrix. See matrix.h. */
#include "tests/e2e/matrix.h"

#include "core/compiler.h"

/* A command of a shell with each redirection. */
#define REDIRECTED(before, after)                                              \
    {                                                                          \
        before " > exec" after, before " >> exec" after,                       \
            before " 1<> exec" after                                           \
    }
/* Bytes that make $F too long in a column where $PAD is not empty. */
#define PADS " $PAD $PAD $PAD $PAD $PAD $PAD $PAD $PAD $PAD $PAD $PAD"
/* Two programs that get the same handle from their shell. */
#define BOTH_LINES(before, after)                                              \
    "{ " before "$T/one" after "; " before "$T/two" after "; } > exec"

#define PYTHON(text)                                                           \
    "python3 -c '\n"                                                           \
    "import os, sys, threading, time\n"                                        \
    "t = open(os.environ[\"T\"] + \"/text\", \"rb\").read()\n"                 \
    "def die(): os.kill(os.getpid(), int(os.environ[\"SIG\"]))\n"              \
    "def child():\n"                                                           \
    "    if os.fork() == 0: os._exit(0)\n"                                     \
    "    os.wait()\n" text "'"
#define NODE(text)                                                             \
    "node -e '\n"                                                              \
    "const fs = require(\"fs\");\n"                                            \
    "const t = fs.readFileSync(process.env.T + \"/text\");\n"                  \
    "function die() { process.kill(process.pid, +process.env.SIG);\n"          \
    "    setTimeout(() => {}, 60000); }\n"                                     \
    "function child(fd) { require(\"child_process\").execFileSync(\n"          \
    "    \"/bin/true\", { stdio: [0, fd, 2] }); }\n" text "'"
#define PERL(text)                                                             \
    "perl -e 'sub bad { print STDERR $!; exit 1 }\n"                           \
    "local $/; open(T, \"<\", \"$ENV{T}/text\"); $t = <T>;\n" text "'"

#define PYTHON_BUFFERED(mode)                                                  \
    PYTHON("with open(\"exec\", \"" mode "\") as f: f.write(t)\n")
#define PYTHON_RAW(flags)                                                      \
    PYTHON("f = os.open(\"exec\", " flags ")\n"                                \
           "for at in range(0, len(t), 100000):\n"                             \
           "    os.write(f, t[at:at + 100000])\n"                              \
           "os.close(f)\n")
#define PYTHON_UNBUFFERED(mode)                                                \
    PYTHON("f = open(\"exec\", \"" mode "\", buffering=0)\n"                   \
           "f.write(t)\n"                                                      \
           "f.close()\n")
/* Freed as the interpreter ends. */
#define PYTHON_OPEN(mode)                                                      \
    PYTHON("f = open(\"exec\", \"" mode "\")\n"                                \
           "f.write(t)\n")
#define PYTHON_LEFT(flags)                                                     \
    PYTHON("f = os.open(\"exec\", " flags ")\n"                                \
           "os.write(f, t)\n")
#define PYTHON_THREADED(mode)                                                  \
    PYTHON("failed = []\n"                                                     \
           "threading.excepthook = lambda a: failed.append(a.exc_value)\n"     \
           "def work():\n"                                                     \
           "    with open(\"exec\", \"" mode "\") as f: f.write(t)\n"          \
           "w = threading.Thread(target=work)\n"                               \
           "w.start(); w.join()\n"                                             \
           "if failed: sys.exit(str(failed[0]))\n")
#define PERL_BUFFERED(mode)                                                    \
    PERL("open(F, \"" mode "\", \"exec\") or bad; print F $t; close(F) or "    \
         "bad;")
#define PERL_RAW(mode)                                                         \
    PERL("open(F, \"" mode "\", \"exec\") or bad;\n"                           \
         "defined(syswrite(F, $t)) or bad; close(F) or bad;")
#define NODE_SYNC(flag)                                                        \
    NODE("fs.writeFileSync(\"exec\", t, { flag: \"" flag "\" });")
#define NODE_STREAM(flags)                                                     \
    NODE("fs.createWriteStream(\"exec\", { flags: \"" flags "\" }).end(t);")

const struct writer matrix_writers[] = {
    {
        .name = "bash printf",
        .write = REDIRECTED("bash -c 'printf \"$F\\n\"", "'"),
        .killed = "bash -c '{ printf \"$F\\n\"; kill -$SIG $$; } > exec'",
        .inherited = "bash -c '{ printf \"echo one\\n\"; (:); /bin/true\n"
                     "printf \"echo two\\n\"; } > exec'",
        .left = "bash -c '{ printf \"$F\\n\"; exit 0; } > exec'",
        .at_open = 1,
        .at_write = 1,
        .at_close = 0,
        .close_mute = true,
    },
    {
        .name = "bash echo",
        .write = REDIRECTED("bash -c 'echo -e \"$F\"" PADS, "'"),
        .killed = "bash -c 'exec > exec; { echo -e \"$F\"; kill -$SIG $$; }'",
        .inherited = "bash -c 'exec > exec; echo \"echo one\"; sleep 0 | :\n"
                     "echo \"echo two\"'",
        .left = "bash -c 'exec > exec; echo -e \"$F\"'",
        .at_open = 1,
        .at_write = 1,
        .at_close = 0,
        .close_mute = true,
    },
    {
        .name = "dash printf",
        .write = REDIRECTED("dash -c 'printf \"$F\\n\"", "'"),
        .killed = "dash -c '{ printf \"$F\\n\"; kill -$SIG $$; } > exec'",
        .inherited = "dash -c '{ printf \"echo one\\n\"; (:); /bin/true\n"
                     "printf \"echo two\\n\"; } > exec'",
        .left = "dash -c 'exec > exec; printf \"$F\\n\"; exit 0'",
        .at_open = 2,
        .at_write = 1,
        .at_close = 0,
        .write_mute = true,
        .close_mute = true,
    },
    {
        .name = "busybox sh printf",
        .write = REDIRECTED("busybox sh -c 'printf \"$F\\n\"", "'"),
        .killed = "busybox sh -c '{ printf \"$F\\n\"; kill -$SIG $$; } > exec'",
        .inherited = "busybox sh -c '{ printf \"echo one\\n\"; (:); /bin/true\n"
                     "printf \"echo two\\n\"; } > exec'",
        .left = "busybox sh -c 'exec > exec; printf \"$F\\n\"; exit 0'",
        .at_open = 1,
        .at_write = 1,
        .at_close = 0,
        .write_mute = true,
        .close_mute = true,
    },
    {
        .name = "/bin/echo",
        .write = REDIRECTED("/bin/echo -e \"$F\"" PADS, ""),
        .inherited = "{ /bin/echo echo one; /bin/echo echo two; } > exec",
        .left = "/bin/echo -e \"$F\" 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
    },
    {
        .name = "a here-document",
        .write = REDIRECTED("cat", " <<END\n$(printf \"$F\")\nEND\n"),
        .inherited = "{ cat <<END; cat <<END2; } > exec\n"
                     "echo one\nEND\n"
                     "echo two\nEND2\n",
        .left = "bash -c 'exec > exec; cat' <<END\n$(printf \"$F\")\nEND\n",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
        .no_nul = true,
    },
    {
        .name = "cat",
        .write = REDIRECTED("cat $T/text", ""),
        .killed = "feed bash -c 'exec cat > exec'",
        .inherited = BOTH_LINES("cat ", ""),
        .left = "cat $T/text 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
    },
    {
        .name = "tee",
        .write = {"tee exec < $T/text > /dev/null",
                  "tee -a exec < $T/text > /dev/null",
                  "tee /dev/null < $T/text 1<> exec"},
        .killed = "feed tee exec > /dev/null",
        .inherited = BOTH_LINES("tee < ", ""),
        .left = "tee < $T/text 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
    },
    {
        .name = "cp",
        .write = {"cp $T/text exec", "cp $T/text /dev/stdout >> exec",
                  "cp $T/text /dev/stdout 1<> exec"},
        .killed = "feed cp /dev/stdin exec",
        .inherited = BOTH_LINES("cp ", " /dev/stdout"),
        .left = "cp $T/text exec 3> exec",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
    },
    {
        .name = "dd bs=1",
        .write = {"dd bs=1 if=$T/text of=exec",
                  "dd bs=1 if=$T/text of=exec oflag=append conv=notrunc",
                  "dd bs=1 if=$T/text 1<> exec"},
        .killed = "feed dd bs=1 of=exec",
        .inherited = BOTH_LINES("dd bs=1 if=", ""),
        .left = "dd bs=1 if=$T/text 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
        .slow = true,
    },
    {
        .name = "dd bs=64k",
        .write = {"dd bs=64k if=$T/text of=exec",
                  "dd bs=64k if=$T/text of=exec oflag=append conv=notrunc",
                  "dd bs=64k if=$T/text of=exec conv=notrunc"},
        .killed = "feed dd bs=64k of=exec",
        .inherited = BOTH_LINES("dd bs=64k if=", ""),
        .left = "dd bs=64k if=$T/text 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
    },
    {
        .name = "dd in other blocks than it reads",
        .write = {"dd ibs=5 obs=7 if=$T/text of=exec",
                  "dd ibs=5 obs=7 if=$T/text >> exec",
                  "dd ibs=5 obs=7 if=$T/text of=exec conv=notrunc"},
        .killed = "feed dd ibs=5 obs=9 of=exec",
        .inherited = BOTH_LINES("dd ibs=5 obs=7 if=", ""),
        .left = "dd ibs=5 obs=7 if=$T/text 3> exec >&3",
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .two = true,
        .slow = true,
    },
    {
        .name = "sed w",
        .write = {"sed -n 'w exec' $T/text", "sed '' $T/text >> exec",
                  "sed -n 'w /dev/stdout' $T/text 1<> exec"},
        .killed = "feed sed -u -n 'w exec'",
        .inherited = "sed -n -e 'w exec' -e 'e true' $T/text",
        .left = "sed '' $T/text 3> exec >&3",
        .at_open = 4,
        .at_write = 4,
        .at_close = 4,
    },
    {
        .name = "awk",
        .write = {"awk '{ print > \"exec\" }' $T/text",
                  "awk '{ print >> \"exec\" }' $T/text",
                  "awk '{ print }' $T/text 1<> exec"},
        .killed = "awk 'BEGIN { print \"echo one\" > \"exec\"\n"
                  "fflush(\"exec\"); system(\"kill -$SIG $PPID\") }'",
        .inherited = "awk '{ print > \"exec\"; fflush(\"exec\")\n"
                     "system(\"true\") }' $T/text",
        .left = "awk '{ print }' $T/text 3> exec >&3",
        .at_open = 2,
        .at_write = 2,
        .at_close = 2,
    },
    {
        .name = "perl",
        .write = {PERL_BUFFERED(">"), PERL_BUFFERED(">>"), PERL_BUFFERED("+<")},
        .killed = PERL("open(F, \">\", \"exec\"); F->autoflush; print F $t;\n"
                       "kill $ENV{SIG}, $$; sleep 60"),
        .inherited = PERL("open(F, \">\", \"exec\"); F->autoflush;\n"
                          "print F \"echo one\\n\"; fork or exec \"true\";\n"
                          "wait; print F \"echo two\\n\"; close(F) or bad;"),
        .left = PERL("open(F, \">\", \"exec\"); print F $t;"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "perl syswrite",
        .write = {PERL_RAW(">"), PERL_RAW(">>"), PERL_RAW("+<")},
        .killed = PERL("open(F, \">\", \"exec\"); syswrite(F, $t);\n"
                       "kill $ENV{SIG}, $$; sleep 60"),
        .inherited = PERL("open(F, \">\", \"exec\"); syswrite(F, \"echo one\n"
                          "\"); system(\"(exit 0); true\");\n"
                          "syswrite(F, \"echo two\n\"); close(F) or bad;"),
        .left = PERL("use POSIX; open(F, \">\", \"exec\"); syswrite(F, $t);\n"
                     "POSIX::_exit(0)"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .blind = true,
    },
    {
        .name = "python3, buffered",
        .write = {PYTHON_BUFFERED("wb"), PYTHON_BUFFERED("ab"),
                  PYTHON_BUFFERED("r+b")},
        .killed = PYTHON("f = open(\"exec\", \"wb\")\n"
                         "f.write(t); f.flush(); die()\n"),
        .inherited = PYTHON("with open(\"exec\", \"wb\") as f:\n"
                            "    f.write(t[:9]); f.flush()\n"
                            "    child(); f.write(t[9:])\n"),
        .left = PYTHON("f = open(\"exec\", \"wb\")\n"
                       "f.write(t); f.flush(); os._exit(0)\n"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "python3, raw",
        .write = {PYTHON_RAW("os.O_WRONLY | os.O_TRUNC"),
                  PYTHON_RAW("os.O_WRONLY | os.O_APPEND"),
                  PYTHON_RAW("os.O_RDWR")},
        .killed = PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                         "os.write(f, t); die()\n"),
        .inherited = PYTHON("f = os.open(\"exec\", os.O_RDWR)\n"
                            "os.write(f, t[:9]); child()\n"
                            "os.write(f, t[9:]); os.close(f)\n"),
        .left = PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                       "os.write(f, t); os._exit(0)\n"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "python3, unbuffered",
        .write = {PYTHON_UNBUFFERED("wb"), PYTHON_UNBUFFERED("ab"),
                  PYTHON_UNBUFFERED("r+b")},
        .killed = PYTHON("f = open(\"exec\", \"wb\", buffering=0)\n"
                         "f.write(t); die()\n"),
        .inherited = PYTHON("f = open(\"exec\", \"wb\", buffering=0)\n"
                            "f.write(t[:9]); child(); f.write(t[9:])\n"
                            "f.close()\n"),
        .left = PYTHON("f = open(\"exec\", \"wb\", buffering=0)\n"
                       "f.write(t); os._exit(0)\n"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
        .blind = true,
    },
    {
        .name = "python3, buffered, without close",
        .write = {PYTHON_OPEN("wb"), PYTHON_OPEN("ab"), PYTHON_OPEN("r+b")},
        .killed = PYTHON("f = open(\"exec\", \"wb\")\n"
                         "f.write(t); f.flush(); die()\n"),
        .inherited = PYTHON("f = open(\"exec\", \"wb\")\n"
                            "f.write(t[:9]); f.flush(); child()\n"
                            "f.write(t[9:])\n"),
        .left = PYTHON_OPEN("wb"),
        .at_open = 1,
        .at_write = 0, /* What it frees fails in silence. */
        .at_close = 0,
        .write_mute = true,
        .close_mute = true,
    },
    {
        .name = "python3, raw, without close",
        .write = {PYTHON_LEFT("os.O_WRONLY | os.O_TRUNC"),
                  PYTHON_LEFT("os.O_WRONLY | os.O_APPEND"),
                  PYTHON_LEFT("os.O_RDWR")},
        .killed = PYTHON("f = os.open(\"exec\", os.O_RDWR | os.O_APPEND)\n"
                         "os.write(f, t); die()\n"),
        .inherited = PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                            "os.write(f, t[:9]); child()\n"
                            "os.write(f, t[9:])\n"),
        .left = PYTHON_LEFT("os.O_RDWR"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 0, /* Nobody is there to be told. */
        .close_mute = true,
        .blind = true,
    },
    {
        .name = "python3, threaded",
        .write = {PYTHON_THREADED("wb"), PYTHON_THREADED("ab"),
                  PYTHON_THREADED("r+b")},
        .killed = PYTHON("def work():\n"
                         "    f = os.open(\"exec\", os.O_WRONLY)\n"
                         "    os.write(f, t); die()\n"
                         "    time.sleep(60)\n"
                         "threading.Thread(target=work).start()\n"
                         "time.sleep(60)\n"),
        .inherited = PYTHON("f = os.open(\"exec\", os.O_WRONLY)\n"
                            "def work(text): os.write(f, text)\n"
                            "for text in (t[:9], t[9:]):\n"
                            "    w = threading.Thread(target=work, args=(text,)"
                            ")\n"
                            "    w.start(); w.join(); child()\n"
                            "os.close(f)\n"),
        .left = PYTHON("threading.Thread(target=time.sleep, args=(60,),\n"
                       "    daemon=True).start()\n"
                       "f = os.open(\"exec\", os.O_WRONLY)\n"
                       "os.write(f, t)\n"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "node writeFileSync",
        .write = {NODE_SYNC("w"), NODE_SYNC("a"), NODE_SYNC("r+")},
        .killed = NODE("const f = fs.openSync(\"exec\", \"w\");\n"
                       "fs.writeFileSync(f, t); die();"),
        .inherited = NODE("const f = fs.openSync(\"exec\", \"w\");\n"
                          "fs.writeSync(f, t.subarray(0, 9)); child(f);\n"
                          "fs.writeSync(f, t.subarray(9)); fs.closeSync(f);"),
        .left = NODE("fs.writeSync(fs.openSync(\"exec\", \"w\"), t);"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "a stream of node",
        .write = {NODE_STREAM("w"), NODE_STREAM("a"), NODE_STREAM("r+")},
        .killed = NODE("fs.createWriteStream(\"exec\").write(t, die);"),
        .inherited = NODE("const s = fs.createWriteStream(\"exec\");\n"
                          "s.write(t.subarray(0, 9), () => {\n"
                          "    child(s.fd); s.end(t.subarray(9)); });"),
        .left = NODE("fs.createWriteStream(\"exec\").write(t);"),
        .at_open = 1,
        .at_write = 1,
        .at_close = 1,
    },
    {
        .name = "node console.log",
        .write = REDIRECTED(NODE("console.log(t.toString().trimEnd());"), ""),
        .killed = NODE("console.log(t.toString()); die();") " > exec",
        .inherited = NODE("console.log(\"echo one\"); child(1);\n"
                          "console.log(\"echo two\");") " > exec",
        .left = NODE("console.log(t.toString().trimEnd());\n"
                     "process.exit(0);") " > exec",
        .at_open = 1,
        .at_write = 0, /* It ignores errors. */
        .at_close = 0, /* Nobody is there to be told. */
        .write_mute = true,
        .close_mute = true,
    },
};

const size_t matrix_writers_count = ARRAY_SIZE(matrix_writers);
