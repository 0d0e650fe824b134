/*
 * Trees that a workload of `local` made, or changes meanwhile, to lead whoever
 * uses the mount to the host, or to wear out the daemon.
 */
#include "tests/e2e/tools.h"

#include <stdlib.h>
#include <unistd.h>

/* What the mount's user does next is done in time, and the daemon lives. */
#define STILL_WELL "echo 'echo well' > exec; cat exec\n"

/* $w: the directory behind the newest session's workspace. */
#define BACKING                                                                \
    "w=$(ls -d $STATE/sessions/*/upper $STATE/sessions/*/workspace "           \
    "2>/dev/null | sort -V | tail -n 1)\n"

/* What a user of the host has there whom no sandbox should give anything: the
 * sandbox's ids are others, or the daemon's own where it is not root. */
#define OTHERS                                                                 \
    "if [ $(id -u) -eq 0 ]; then find $w -uid -65536 -o -gid -65536; "         \
    "else find $w ! -user $(id -u) -o ! -group $(id -g); fi\n"

static const struct script trees[] = {
    {"four thousand levels",
     "cat > exec <<'END'\n"
     "python3 -c 'import os\n"
     "for i in range(4000): os.mkdir(\"d\"); os.chdir(\"d\")\n"
     "open(\"f\", \"w\").write(\"deep\")'\n"
     "END\n"
     "python3 - <<'END'\n"
     "import os\n"
     "fd = os.open('workspace', os.O_RDONLY)\n"
     "for i in range(4000):\n"
     "    up, fd = fd, os.open('d', os.O_RDONLY, dir_fd=fd); os.close(up)\n"
     "print(os.read(os.open('f', os.O_RDONLY, dir_fd=fd), 9).decode())\n"
     "END\n"
     "rm -r workspace/d; ls -A workspace\n" STILL_WELL,
     "deep\nwell\n"},
    {"four thousand levels that nobody removes",
     "cat > exec <<'END'\n"
     "python3 -c 'import os\n"
     "for i in range(4000): os.mkdir(\"d\"); os.chdir(\"d\")'\n"
     "END\n"
     "echo absent > status; cat status; ls -A workspace\n" STILL_WELL,
     "absent\nwell\n"},
    {"names of all bytes and of the greatest length",
     "cat > exec <<'END'\n"
     "python3 -c 'import os\n"
     "for n in [b\"n\" * 255, b\"\\xff\\xfe\", b\"a\\nb\", "
     "b\"\\x01\\x1b[2J\",\n"
     "          b\"-rf\", b\" \", b\"...\", b\".. \"]:\n"
     "    open(n, \"wb\").write(n)'\n"
     "END\n"
     "python3 - <<'END'\n"
     "import os\n"
     "for n in sorted(os.listdir(b'workspace')):\n"
     "    p = b'workspace/' + n\n"
     "    print(len(n), os.lstat(p).st_size, open(p, 'rb').read() == n)\n"
     "    os.rename(p, b'workspace/x'); os.unlink(b'workspace/x')\n"
     "try: open('workspace/' + 'n' * 256, 'w')\n"
     "except OSError as e: print(e.strerror)\n"
     "END\n"
     "ls -A workspace\n" STILL_WELL,
     "5 5 True\n1 1 True\n3 3 True\n3 3 True\n3 3 True\n3 3 True\n"
     "255 255 True\n2 2 True\nFile name too long\nwell\n"},
    {"a sparse file of a tebibyte",
     "echo 'truncate -s 15G f' > exec; truncate -s 1T workspace/f\n"
     "printf end >> workspace/f\n"
     "stat -c '%s %b' workspace/f | awk '{print $1, $2 < 100}'\n"
     "tail -c 3 workspace/f; echo; dd if=workspace/f bs=1M count=1 "
     "skip=500000 status=none | tr -d '\\0' | wc -c\n"
     "truncate -s 0 workspace/f; stat -c %s workspace/f\n" STILL_WELL,
     "1099511627779 1\nend\n0\n0\nwell\n"},
    {"as many links as a file can have",
     "cat > exec <<'END'\n"
     "python3 -c 'import os\n"
     "open(\"f\", \"w\").close(); os.mkdir(\"d\")\n"
     "try:\n"
     "    for i in range(10**6): os.link(\"f\", \"d/%d\" % i)\n"
     "except OSError as e: print(e.strerror, i >= 1000)'\n"
     "END\n"
     "cat exec; ln workspace/f workspace/one 2>&1 | grep -o 'Too many links'\n"
     "test $(stat -c %h workspace/f) = $(($(ls workspace/d | wc -l) + 1)) && "
     "echo all; rm workspace/d/7; ln workspace/f workspace/one && echo one\n"
     "echo absent > status; cat status\n" STILL_WELL,
     "Too many links True\nToo many links\nall\none\nabsent\nwell\n"},
    {"many entries, and a listing while they change",
     "echo \"mkdir d; cd d; seq $ENTRIES | xargs touch\" > exec\n"
     "test $(ls -f workspace/d | sort -u | wc -l) = $((ENTRIES + 2)) && "
     "echo all\n"
     "echo 'cd d; for i in $(seq 300); do mv $i n$i; rm $i x 2>/dev/null; "
     "touch x; done' > exec &\n"
     "for i in 1 2 3; do ls -f workspace/d | wc -l; done | "
     "awk -v n=$ENTRIES '$1 < n - 999 || $1 > n + 999'; wait\n" STILL_WELL,
     "all\nwell\n"},
    {"attributes as many and as big as there can be",
     "cat > exec <<'END'\n"
     "python3 -c 'import os\n"
     "open(\"f\", \"w\").close()\n"
     "n = 0\n"
     "try:\n"
     "    while n < 5000: os.setxattr(\"f\", \"user.%0200d\" % n, b\"x\"); n "
     "+= 1\n"
     "except OSError: pass\n"
     "open(\"g\", \"w\").close(); size = 65536\n"
     "while size:\n"
     "    try: os.setxattr(\"g\", \"user.big\", b\"x\" * size); break\n"
     "    except OSError: size //= 2\n"
     "print(n, size)'\n"
     "END\n"
     "python3 -c 'import os\n"
     "n, size = map(int, open(\"exec\").read().split())\n"
     "print(n > 1, len(os.listxattr(\"workspace/f\")) == n,\n"
     "      len(os.getxattr(\"workspace/g\", \"user.big\")) == "
     "size)'\n" STILL_WELL,
     "True True True\nwell\n"},
    {"a lease does not hold the daemon up",
     "cat > exec <<'END'\n"
     "echo x > f; setsid python3 -c 'import fcntl, os, signal, time\n"
     "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
     "f = os.open(\"f\", os.O_RDWR)\n"
     "try: fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
     "except PermissionError:\n"
     "    if os.stat(\"/etc/passwd\").st_uid != os.getuid(): raise\n"
     "open(\"held\", \"w\").close(); time.sleep(60)' >/dev/null 2>&1 &\n"
     "while [ ! -e held ]; do sleep 0.01; done\n"
     "END\n"
     "time=$(date +%s)\n"
     "cat workspace/f 2>/dev/null >&2; echo y 2>/dev/null >> workspace/f\n"
     "test $(($(date +%s) - time)) -lt 5 && echo soon\n" STILL_WELL,
     "soon\nwell\n"},
    {"what lives on in the workspace ends with the sandbox",
     "n=4323.$$; cat > exec <<END\n"
     "mkdir d; cd d; echo x > f; setsid sleep $n < f > g 2>&1 &\n"
     "END\n"
     "until pgrep -xf \"sleep $n\" > $T/pid; do sleep 0.01; done\n"
     "echo absent > status; cat status\n"
     "pgrep -xf \"sleep $n\" | wc -l; ls -A workspace\n" STILL_WELL,
     "absent\n0\nwell\n"},
    {"a mapped file that becomes shorter hurts the reader alone",
     "echo 'head -c 1000000 /dev/zero > f' > exec\n"
     "{ python3 -c 'import mmap, os\n"
     "f = open(\"workspace/f\", \"r+b\"); m = mmap.mmap(f.fileno(), 1000000)\n"
     "open(\"exec\", \"w\").write(\": > f\\n\")\n"
     "os.stat(\"workspace/f\"); print(m[999999])'; } "
     "2>/dev/null\n"
     "test $? = 0 -o $? = 135 && echo ended; stat -c %s "
     "workspace/f\n" STILL_WELL,
     "ended\n0\nwell\n"},
    {"what the mount's user makes belongs to no user of the host",
     "mkdir workspace/d; echo x > workspace/f; ln -s f workspace/l\n"
     "mkfifo workspace/p; cp -a /etc/passwd workspace/\n"
     "ln workspace/f workspace/d/h; chmod 6755 workspace/f\n" BACKING OTHERS
     "find $w -type f | wc -l\n" STILL_WELL,
     "3\nwell\n"},
};

/* Where the test can make devices. */
static const struct script devices[] = {
    {"pipes, sockets and devices are shown and never opened",
     "cat > exec <<'END'\n"
     "mkfifo p; python3 -c 'import socket as s\n"
     "s.socket(s.AF_UNIX).bind(\"s\")'\n"
     "END\n" BACKING "mknod -m 666 $w/c c 1 8; mknod -m 666 $w/b b 253 0\n"
     "for n in p s c b; do stat -c '%F' workspace/$n; done\n"
     "for n in p s c b; do timeout 1 cat workspace/$n; echo $?; done 2>&1 | "
     "grep -oE '^[0-9]+|No such device|Permission'\n"
     "for n in p s c b; do timeout 1 sh -c \"echo x > workspace/$n\"; "
     "test $? = 0 && echo wrote; done 2>/dev/null\n"
     "python3 -c 'import socket as s\n"
     "try: s.socket(s.AF_UNIX).connect(\"workspace/s\")\n"
     "except OSError as e: print(e.strerror)'\n"
     "rm workspace/?; ls -A workspace\n" STILL_WELL,
     "fifo\nsocket\ncharacter special file\nblock special file\n124\n"
     "No such device\n1\nPermission\n1\nPermission\n1\n"
     "Connection refused\nwell\n"},
};

static void hostile_trees_are_survived(void **state)
{
    (void)state;
    expect_scripts(trees, ARRAY_SIZE(trees));
}

/* What the sandbox does meanwhile: it swaps things for links to the host. */
#define SWAPS                                                                  \
    "mkdir $T/host; echo host > $T/host/f; chmod 640 $T/host/f\n"              \
    "python3 -c \"import os; os.setxattr('$T/host/f', 'user.a', b'1')\"\n"     \
    "cp -a $T/host $T/copy\n"                                                  \
    "cat > exec <<END\n"                                                       \
    "mkdir d e d/k; echo in > f; echo in > d/f; echo in > e/f\n"               \
    "ln -s $T/host dl; ln -s $T/host/f fl; ln -s ../../../../../../.. e/up\n"  \
    "END\n"                                                                    \
    "cat > exec <<'END' &\n"                                                   \
    "python3 -c 'import ctypes, os\n"                                          \
    "swap = ctypes.CDLL(None).renameat2\n"                                     \
    "pairs = [(b\"d\", b\"dl\"), (b\"f\", b\"fl\"), (b\"d\", b\"f\"),\n"       \
    "         (b\"e\", b\"d\"), (b\"d/k\", b\"e/up\"), (b\"d/f\", b\"fl\")]\n" \
    "while not os.path.lexists(\"stop\"):\n"                                   \
    "    for a, b in pairs: swap(-100, a, -100, b, 2)'\n"                      \
    "END\n"

/* What the mount's user does: all that there is to do with names. */
#define OPERATIONS                                                             \
    "timeout $((RACE_S + 30)) python3 - <<'END'\n"                             \
    "import os, random, time\n"                                                \
    "w = 'workspace/'\n"                                                       \
    "names = ['d', 'f', 'dl', 'fl', 'd/f', 'd/new', 'dl/f', 'dl/new', "        \
    "'e/f',\n"                                                                 \
    "         'e/up', 'e/up/etc/hostname', 'd/k/x', 'e/k', 'f/f']\n"           \
    "read = set()\n"                                                           \
    "def cat(p):\n"                                                            \
    "    f = os.open(p, os.O_RDONLY | os.O_NONBLOCK)\n"                        \
    "    read.add(os.read(f, 9)); os.close(f)\n"                               \
    "def put(p):\n"                                                            \
    "    f = os.open(p, 0o1101 | os.O_NONBLOCK)\n"                             \
    "    os.write(f, b'in\\n'); os.close(f)\n"                                 \
    "one = [cat, put, os.stat, os.lstat, os.readlink, os.unlink, os.rmdir,\n"  \
    "       os.mkdir, os.listdir, os.mkfifo, lambda p: os.chmod(p, 0o777),\n"  \
    "       lambda p: os.utime(p, (1, 1)), lambda p: os.truncate(p, 0),\n"     \
    "       lambda p: os.chown(p, 12, 13, follow_symlinks=False),\n"           \
    "       lambda p: os.chown(p, 12, 13),\n"                                  \
    "       lambda p: os.setxattr(p, 'user.a', b'2'),\n"                       \
    "       lambda p: os.symlink('f', p)]\n"                                   \
    "two = [os.rename, os.link]\n"                                             \
    "end = time.time() + int(os.environ['RACE_S']); done = 0\n"                \
    "while time.time() < end:\n"                                               \
    "    try:\n"                                                               \
    "        if random.random() < 0.8:\n"                                      \
    "            random.choice(one)(w + random.choice(names))\n"               \
    "        else:\n"                                                          \
    "            random.choice(two)(w + random.choice(names),\n"               \
    "                               w + random.choice(names))\n"               \
    "        done += 1\n"                                                      \
    "    except OSError: pass\n"                                               \
    "    if not os.path.lexists(w + 'f'):\n"                                   \
    "        try: put(w + 'f')\n"                                              \
    "        except OSError: pass\n"                                           \
    "print(done > 100, read <= {b'', b'in\\n'})\n"                             \
    "END\n"

static const struct script races[] = {
    {"no operation is led to the host by what is swapped meanwhile",
     SWAPS OPERATIONS
     "touch workspace/stop; wait; diff -r $T/host $T/copy\n"
     "(cd $T/host; stat -c '%n %a %u %g %Y %s %h' * .) > $T/now\n"
     "(cd $T/copy; stat -c '%n %a %u %g %Y %s %h' * .) | diff - $T/now\n"
     "python3 -c \"import os; print(os.getxattr('$T/host/f', "
     "'user.a'))\"\n" BACKING OTHERS STILL_WELL,
     "True True\nb'1'\nwell\n"},
};

static void devices_are_never_opened(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    expect_scripts(devices, ARRAY_SIZE(devices));
}

static void races_lead_nobody_out(void **state)
{
    (void)state;
    expect_scripts(races, ARRAY_SIZE(races));
}

static const struct CMUnitTest tests[] = {
    e2e_test_of("local", hostile_trees_are_survived),
    e2e_test_of("local", devices_are_never_opened),
    e2e_test_of("local", races_lead_nobody_out),
};

/* With a number of seconds the races take that long, and trees are larger. */
int main(int argc, char **argv)
{
    const char *seconds = argc > 2 ? argv[2] : "2";

    if (setenv("RACE_S", seconds, 1) < 0 ||
        setenv("ENTRIES", argc > 2 ? "100000" : "20000", 1) < 0) {
        return 1;
    }
    return e2e_run(argc > 2 ? 2 : argc, argv, tests, ARRAY_SIZE(tests));
}
