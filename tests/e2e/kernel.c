/*
 * What the kernel is allowed to do by itself: keep what it was told, and read
 * and write files. Nothing of that may show.
 */
#include "tests/e2e/tools.h"

#include <stdlib.h>
#include <sys/resource.h>

/* What a command changes is seen by whoever holds the file, however. */
#define HELD                                                                   \
    "mkdir workspace/d; echo old > workspace/d/f; echo o > workspace/d/g\n"    \
    "cat > $T/held.py <<'END'\n"                                               \
    "import os\n"                                                              \
    "os.chdir('workspace/d')\n"                                                \
    "held = [os.open('f', os.O_RDONLY), os.open('f', os.O_PATH)]\n"            \
    "here = os.open('.', os.O_PATH)\n"                                         \
    "def look():\n"                                                            \
    "    sizes = [os.fstat(f).st_size for f in held]\n"                        \
    "    sizes.append(os.stat('f').st_size)\n"                                 \
    "    return (sizes, os.fstat(here).st_nlink, os.stat('.').st_nlink,\n"     \
    "            sorted(os.listdir('.')), os.path.exists('new'),\n"            \
    "            os.path.exists('g'), os.pread(held[0], 99, 0))\n"             \
    "look(); before = look()\n"                                                \
    "with open('../../exec', 'w') as e: e.write('cd d; printf longer > f;'\n"  \
    "    'mkdir new; rm g; true')\n"                                           \
    "print(before); print(look())\n"                                           \
    "END\n"

static const struct script scripts[] = {
    {"a change is seen however the file is held", HELD "python3 $T/held.py\n",
     "([4, 4, 4], 2, 2, ['f', 'g'], False, True, b'old\\n')\n"
     "([6, 6, 6], 3, 3, ['f', 'new'], True, False, b'longer')\n"},
    {"a name that was not there, and one that was, in a hundred commands",
     "cd workspace; for i in $(seq 30); do\n"
     "test -e n && echo early $i; test -e o; ls > /dev/null\n"
     "echo \"touch n; rm -f o; echo $i > f; cd ..\" > ../exec\n"
     "test -e n || echo late $i; test $(cat f) = $i || echo old $i\n"
     "test $(ls | tr '\\n' .) = f.n. || ls\n"
     "echo 'rm n; touch o' > ../exec; test -e o || echo none $i\n"
     "test $(ls | tr '\\n' .) = f.o. || ls\n"
     "done; echo done\n",
     "done\n"},
    {"one of many names that were not there",
     "touch workspace/o; mkdir checkpoints/a; rm workspace/o\n"
     "python3 - <<'END'\n"
     "import os, time\n"
     "os.chdir('workspace'); round = 0\n"
     "def write(p, s):\n"
     "    with open(p, 'w') as f: f.write(s)\n"
     "def missed(p):\n"
     "    global round; round += 1\n"
     "    return not any(os.path.exists(n) for n in\n"
     "        ['m%d.%d' % (round, i) for i in range(40)] + [p])\n"
     "for how in (lambda: write('../exec', 'touch n'), lambda: write('n', "
     "''),\n"
     "            lambda: os.symlink('.', 'n'), lambda: os.mkdir('n')):\n"
     "    print(missed('n'), how(), os.path.exists('n'))\n"
     "    write('../exec', 'rm -rf n')\n"
     "print(missed('o'), write('../restore', 'a'), os.path.exists('o'))\n"
     "write('../exec', '(sleep 1; touch l) >/dev/null 2>&1 &')\n"
     "print(missed('l'), time.sleep(2), os.path.exists('l'))\n"
     "END\n",
     "True None True\nTrue None True\nTrue None True\nTrue None True\n"
     "True None True\nTrue None True\n"},
    {"a process in the background is seen within a second",
     "cat > exec <<'END'\n"
     "(until [ -e stop ]; do date +%s%N > n.new; mv n.new n; cat n >> long; "
     "touch s$(date +%s); sleep 0.03; done) >/dev/null 2>&1 &\n"
     "until [ -e long ]; do sleep 0.01; done\n"
     "END\n"
     "cd workspace; for i in 1 2 3; do\n"
     "cat n > /dev/null; a=$(stat -c %s long); s=$(($(date +%s) + 2))\n"
     "test -e s$s && echo early; sleep 1; t=$(date +%s%N); n=$(cat n)\n"
     "test $((t - n)) -lt 1000000000 || echo old $((t - n))\n"
     "test $(stat -c %s long) -gt $a || echo short\n"
     /* It is made at the second's begin, or a moment later. */
     "until test -e s$s; do test $(date +%s) -le $((s + 1)) || "
     "{ echo unseen; break; }; sleep 0.05; done\n"
     "done; touch stop; sleep 1\n"
     "echo in > in; cat in; echo 'echo sandbox > in' > ../exec; cat in\n",
     "in\nsandbox\n"},
    {"a file that a command writes meanwhile is read as it is",
     "echo 'i=0; while [ ! -e stop ]; do i=$((i + 1)); echo $i > n.new; mv "
     "n.new n; done' > exec &\n"
     "cd workspace; until [ -e n ]; do sleep 0.05; done\n"
     "for i in 1 2 3; do a=$(cat n); sleep 1; test $(cat n) -gt $a || echo "
     "old; done; touch stop; wait; echo done\n",
     "done\n"},
    {"mapped, read and written at once",
     "python3 - <<'END'\n"
     "import mmap, os\n"
     "f = os.open('workspace/f', os.O_RDWR | os.O_CREAT)\n"
     "os.write(f, b'a' * 8192); m = mmap.mmap(f, 8192)\n"
     "m[0:3] = b'map'; print(os.pread(f, 4, 0))\n"
     "os.pwrite(f, b'put', 4096); print(m[4095:4100])\n"
     "g = os.open('workspace/f', os.O_RDONLY); print(os.pread(g, 4, 0))\n"
     "m.flush(); print(open('workspace/f', 'rb').read()[4096:4099])\n"
     "a = os.open('workspace/f', os.O_WRONLY | os.O_APPEND)\n"
     "os.write(a, b'end'); print(os.fstat(g).st_size)\n"
     "os.ftruncate(f, 4); print(os.fstat(a).st_size, os.pread(g, 9, 0))\n"
     "END\n"
     "echo 'cat f' > exec; cat exec; echo\n",
     "b'mapa'\nb'aputa'\nb'mapa'\nb'put'\n8195\n4 b'mapa'\nmapa\n"},
    {"an open file stays the one it was",
     "python3 - <<'END'\n"
     "import os\n"
     "def run(s):\n"
     "    with open('exec', 'w') as e: e.write(s)\n"
     "open('workspace/f', 'w').write('one')\n"
     "r = os.open('workspace/f', os.O_RDONLY)\n"
     "w = os.open('workspace/f', os.O_RDWR)\n"
     "os.rename('workspace/f', 'workspace/g'); os.write(w, b'two')\n"
     "print(os.pread(r, 9, 0), open('workspace/g').read())\n"
     "run('rm g; echo three > g'); os.pwrite(w, b'four', 0)\n"
     "print(os.pread(r, 9, 0), open('workspace/g').read().strip())\n"
     "os.fsync(w); os.ftruncate(w, 2); print(os.fstat(r).st_size)\n"
     "END\n",
     "b'two' two\nb'four' three\n2\n"},
};

/* Layers: what is changed for the first time is copied up, with all above. */
static const struct script lifts[] = {
    {"what a change moves above it is seen",
     "n='open write mode link move remove make attribute length time'\n"
     "echo \"for d in $n; do mkdir -p \\$d/b/c; echo x > \\$d/b/c/f; "
     "ln -s f \\$d/b/c/l; done\" > exec; mkdir checkpoints/a\n"
     "echo a > restore; cd workspace; sleep 0.02\n"
     "all() { find . -exec stat \"$@\" -c '%n %i %.9Y %.9Z %h %a' {} + | "
     "sort; }\n"
     "look() { all > $T/is; all --cached=never | cmp $T/is && echo $1; }\n"
     "look first\n"
     "(: 3<> open/b/c/f); look open; echo y >> write/b/c/f; look write\n"
     "chmod 600 mode/b/c/f; look mode; ln link/b/c/f link/b/g\n"
     "c() { stat \"$@\" -c '%h %.9Z' link/b/c; }\n"
     "test \"$(c)\" = \"$(c --cached=never)\" || c; look link\n"
     "mv move/b/c move/b/d; look move; rm remove/b/c/l; look remove\n"
     "mkdir make/b/c/d; look make; truncate -s 9 length/b/c/f; look length\n"
     "python3 -c 'import os; os.setxattr(\"attribute/b/c\", \"user.a\", "
     "b\"b\")'\n"
     "look attribute; touch -h time/b/c/l; look time\n",
     "first\nopen\nwrite\nmode\nlink\nmove\nremove\nmake\nlength\n"
     "attribute\ntime\n"},
};

static void nothing_shows(void **state)
{
    (void)state;
    expect_scripts(scripts, ARRAY_SIZE(scripts));
}

static void what_is_copied_up_moves_what_is_above(void **state)
{
    (void)state;
    expect_scripts(lifts, ARRAY_SIZE(lifts));
}

/*
 * Names of one file, which an overlay shows as two files at times: as a user
 * who is not root always, once a file of a layer was copied and the kernel has
 * forgotten the second name.
 */
#define NAMES                                                                  \
    "echo 'echo one > f; echo 0 > n' > exec; mkdir checkpoints/a\n"            \
    "echo a > restore; cd workspace; cat > $T/names.py <<'END'\n"              \
    "import os, mmap, time\n"                                                  \
    "def drop():\n"                                                            \
    "    way = os.environ.get('SESSIONFS_DROP', '/proc/sys/vm/drop_caches')\n" \
    "    open(way, 'w').write('2')\n"                                          \
    "    while way[:5] != '/proc' and os.path.exists(way): time.sleep(.02)\n"  \
    "def read(f): return os.pread(f, 99, 0).decode()\n"                        \
    "def look(*names):\n"                                                      \
    "    seen = set()\n"                                                       \
    "    for n in names:\n"                                                    \
    "        f = os.open(n, os.O_RDONLY); s = os.stat(n)\n"                    \
    "        seen.add((read(f), s.st_size, s.st_nlink, s.st_mode & 0o777))\n"  \
    "        os.close(f)\n"                                                    \
    "    print(seen)\n"                                                        \
    "f = os.open('f', os.O_RDWR); os.write(f, b'two'); os.link('f', 'g')\n"    \
    "drop(); look('f', 'g'); r = os.open('f', os.O_RDONLY)\n"

static const struct script names[] = {
    {"names of one file tell the same",
     NAMES
     "g = os.open('g', os.O_RDWR | os.O_APPEND); os.write(g, b'more')\n"
     "look('f', 'g'); print(read(r).strip(), read(f).strip())\n"
     "os.write(g, b'!'); look('f', 'g'); print(read(r)); os.chmod('g', 0o600)\n"
     "look('f', 'g'); os.truncate('g', 3); look('f', 'g'); os.close(f)\n"
     "f = os.open('f', os.O_RDWR); os.pwrite(f, b'T', 0); print(read(g))\n"
     "os.link('g', 'h'); look('f', 'g', 'h'); os.unlink('f')\n"
     "look('g', 'h'); os.rename('h', 'f'); look('g', 'f')\n"
     "END\npython3 $T/names.py\n",
     "{('two\\n', 4, 2, 420)}\n{('two\\nmore', 8, 2, 420)}\n"
     "two\nmore two\nmore\n{('two\\nmore!', 9, 2, 420)}\ntwo\nmore!\n"
     "{('two\\nmore!', 9, 2, 384)}\n{('two', 3, 2, 384)}\nTwo\n"
     "{('Two', 3, 3, 384)}\n{('Two', 3, 2, 384)}\n{('Two', 3, 2, 384)}\n"},
    {"one that is gone but open, and the last one",
     NAMES
     "g = os.open('g', os.O_RDWR); os.unlink('g'); look('f')\n"
     "os.pwrite(g, b'more', 4); look('f'); os.fchmod(g, 0o600); look('f')\n"
     "os.ftruncate(g, 2); look('f'); os.link('f', 'g')\n"
     "w = os.open('/proc/self/fd/%d' % g, os.O_WRONLY); os.close(g)\n"
     "os.unlink('g'); look('f'); os.close(w); look('f')\n"
     "r2 = os.open('f', os.O_RDONLY); os.fchmod(r2, 0o640); look('f')\n"
     "END\npython3 $T/names.py\n",
     "{('two\\n', 4, 2, 420)}\n{('two\\n', 4, 1, 420)}\n"
     "{('two\\nmore', 8, 1, 420)}\n{('two\\nmore', 8, 1, 384)}\n"
     "{('tw', 2, 1, 384)}\n{('tw', 2, 1, 384)}\n{('tw', 2, 1, 384)}\n"
     "{('tw', 2, 1, 416)}\n"},
    {"one that is gone, and is opened to be written once more",
     NAMES
     "g = os.open('g', os.O_RDONLY); os.unlink('g'); os.close(f); look('f')\n"
     "w = os.open('/proc/self/fd/%d' % g, os.O_WRONLY)\n"
     "os.pwrite(w, b'more', 4); look('f'); os.close(w); look('f')\n"
     "os.fchmod(g, 0o600); look('f')\n"
     "END\npython3 $T/names.py\n",
     "{('two\\n', 4, 2, 420)}\n{('two\\n', 4, 1, 420)}\n"
     "{('two\\nmore', 8, 1, 420)}\n{('two\\nmore', 8, 1, 420)}\n"
     "{('two\\nmore', 8, 1, 384)}\n"},
};

static void names_of_one_file_agree(void **state)
{
    (void)state;
    expect_scripts(names, ARRAY_SIZE(names));
}

/* By a user who is not root: what root writes keeps the bits. */
#define AS_USER                                                                \
    "import os\n"                                                              \
    "os.chdir('workspace'); os.chmod('.', 0o777); os.setgid(65534); "          \
    "os.setuid(65534)\n"                                                       \
    "def mode(p): return oct(os.stat(p).st_mode & 0o7777)\n"                   \
    "def new(p):\n"                                                            \
    "    f = os.open(p, os.O_RDWR | os.O_CREAT, 0o755); os.write(f, b'x')\n"   \
    "    return f\n"

static const struct script set_ids[] = {
    {"a write takes set-id bits away",
     "python3 - <<'END'\n" AS_USER "os.close(new('f'))\n"
     "for how in ('write', 'append', 'truncate', 'open', 'late', 'map'):\n"
     "    os.chmod('f', 0o755)\n"
     "    if how == 'late': f = os.open('f', os.O_RDWR)\n"
     "    os.chmod('f', 0o6755); before = mode('f')\n"
     "    if how == 'write':\n"
     "        f = os.open('f', os.O_RDWR); os.write(f, b'y')\n"
     "    if how == 'append':\n"
     "        f = os.open('f', os.O_WRONLY | os.O_APPEND)\n"
     "        os.write(f, b'y')\n"
     "    if how == 'truncate': os.truncate('f', 1)\n"
     "    if how == 'open':\n"
     "        f = os.open('f', os.O_WRONLY | os.O_TRUNC)\n"
     "    if how == 'late': os.write(f, b'z')\n"
     "    if how == 'map':\n"
     "        f = os.open('f', os.O_RDWR); os.pread(f, 1, 0)\n"
     "    print(how, before, mode('f'))\n"
     "END\n",
     "write 0o6755 0o755\nappend 0o6755 0o755\ntruncate 0o6755 0o755\n"
     "open 0o6755 0o755\nlate 0o6755 0o755\nmap 0o6755 0o6755\n"},
    {"what root writes keeps them",
     "cd workspace; echo x > f; chmod 6755 f; echo y >> f; stat -c %a f\n"
     "python3 -c 'import os\n"
     "r = os.open(\"f\", os.O_RDONLY); w = os.open(\"f\", os.O_RDWR)\n"
     "os.write(w, b\"z\"); print(os.pread(r, 9, 0))'; stat -c %a f\n",
     "6755\nb'z\\ny\\n'\n6755\n"},
};

static void set_id_bits_go_as_everywhere(void **state)
{
    (void)state;
    mnt_stop();
    mnt.options = ",allow_other";
    mnt_start();
    expect_scripts(set_ids, ARRAY_SIZE(set_ids));
    mnt_stop();
    mnt.options = NULL;
    mnt_start();
}

static void what_is_not_to_be_used_is_not(void **state)
{
    (void)state;
    mnt_stop();
    mnt.options = ",without=passthrough:negative";
    mnt_start();
    expect_shell("grep -cE 'feature=\"(passthrough|negative)\"} 0' "
                 "../../stats; echo x > workspace/f; exec 3< workspace/f; "
                 "cat <&3; grep sessionfs_fuse_backing_files ../../stats | "
                 "grep -v '#'",
                 "2\nx\nsessionfs_fuse_backing_files 0\n");
    mnt_stop();
    mnt.options = NULL;
    mnt_start();
}

/* More files than there can be descriptors. It is the last test: the limit
 * stays. */
static void known_files_cost_no_descriptors(void **state)
{
    static const char walk[] =
        "n=${FILES:-3000}; B=$(mktemp -d /dev/shm/sessionfs-e2e.XXXXXX)\n"
        "trap 'rm -rf $B' EXIT; chmod 755 $B; python3 - <<END\n"
        "import os\n"
        "for i in range($n):\n"
        "    if i % 1000 == 0: d = '$B/%d/' % i; os.mkdir(d)\n"
        "    open(d + str(i), 'w').write(str(i))\n"
        "END\n"
        "printf '{\"provider\": \"local\", \"auto_start\": false, "
        "\"provider_config\": {\"base\": \"%s\"}}' $B > config.json\n"
        "echo running > status; cd workspace\n"
        "test $(find . -type f -size -9c | wc -l) = $n && echo found\n"
        "test $(find . -name '*7' -type f -print0 | xargs -0 cat | wc -c) = "
        "$(seq 7 10 $((n - 1)) | tr -d '\\n' | wc -c) && echo read\n"
        "test $(ls -lR . | grep -c ^-) = $n && echo listed\n"
        "awk '/^process_open_fds/ {fds = $2} /^process_max_fds/ {print fds < "
        "$2 / 2}' ../../../stats; cd ..; echo absent > status\n";
    const struct rlimit few = {1024, 1024};
    struct buf out = BUF_INIT(TOOLS_TEXT_MAX);

    (void)state;
    mnt_stop();
    if (!getenv("FILES")) {
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    }
    mnt.options = ",trust=config";
    mnt_start();
    assert_int_equal(shell(walk, 1000 * (MNT_TEST_SECONDS - 10), &out), 0);
    assert_string_equal(buf_str(&out), "found\nread\nlisted\n1\n");
    buf_done(&out);
}

static const struct CMUnitTest tests[] = {
    e2e_test(nothing_shows),
    e2e_test(what_is_copied_up_moves_what_is_above),
    e2e_test(names_of_one_file_agree),
    e2e_test(set_id_bits_go_as_everywhere),
    e2e_test(what_is_not_to_be_used_is_not),
    e2e_test(known_files_cost_no_descriptors),
};

E2E_MAIN(tests)
