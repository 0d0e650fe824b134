/* Many commands, many writers, much output: nothing is lost, twice or mixed. */
#include "tests/e2e/tools.h"

#include <stdio.h>
#include <stdlib.h>

/* How much memory 200 MB of output may cost. A sanitizer keeps what was freed:
 * its figures say nothing. */
#ifdef __SANITIZE_ADDRESS__
enum {
    ROOM_KIB = 1 << 30
};
#else
enum {
    ROOM_KIB = 16 * 1024
};
#endif

/* Checks a file that commands appended to, each a line: as many as there are
 * records, in the same order. */
static const char in_order[] =
    "python3 -c 'import os\n"
    "lines = open(\"workspace/all\").read().splitlines()\n"
    "numbers = sorted(int(n) for n in os.listdir(\"execs\") if n != \"last\")\n"
    "assert numbers == list(range(1, 1001)), numbers\n"
    "assert len(lines) == 1000 and len(set(lines)) == 1000, len(set(lines))\n"
    "for n, line in zip(numbers, lines):\n"
    "    dir = \"execs/%d/\" % n\n"
    "    assert \" \" + line in open(dir + \"command\").read(), (n, line)\n"
    "    assert open(dir + \"exit_code\").read() == \"0\\n\", n\n"
    "    assert open(dir + \"status\").read() == \"exited\\n\", n\n"
    "assert os.readlink(\"execs/last\") == \"1000\"\n"
    "for w in set(l[0] for l in lines):\n"
    "    mine = [l for l in lines if l[0] == w]\n"
    "    assert mine == sorted(mine), mine\n"
    "'\n";

static void a_thousand_commands_of_one_shell_run_once_and_in_order(void **state)
{
    char script[2048];

    (void)state;
    (void)snprintf(script, sizeof(script),
                   "for i in $(seq 1001 2000); do in_append all a$i; done\n%s",
                   in_order);
    expect_shell(script, "");
}

static void
a_thousand_commands_of_five_shells_run_once_and_in_order(void **state)
{
    char script[2048];

    (void)state;
    (void)snprintf(script, sizeof(script),
                   "for w in a b c d e; do\n"
                   "  for i in $(seq 101 300); do in_append all $w$i; done &\n"
                   "done; wait\n%s",
                   in_order);
    expect_shell(script, "");
}

/* Texts of different lengths, in several writes, on one handle a process. */
static void six_writers_at_once_read_their_own_results(void **state)
{
    (void)state;
    expect_shell(
        "cat > $T/writer <<'END'\n"
        "import os, sys\n"
        "f = os.open('exec', os.O_RDWR)\n"
        "for i in range(200):\n"
        "    word = '%s-%d-%s' % (sys.argv[1], i, 'x' * (i * 37 % "
        "5000))\n"
        "    text = ('echo %s\\n' % word).encode()\n"
        "    cut = i * 7 % len(text)\n"
        "    os.write(f, text[:cut])\n"
        "    os.write(f, text[cut:])\n"
        "    got = b''\n"
        "    while True:\n"
        "        part = os.read(f, 1000)\n"
        "        if not part: break\n"
        "        got += part\n"
        "    assert got.decode() == word + '\\n', (word, got)\n"
        "os.close(f)\n"
        "END\n"
        "for w in 1 2 3 4 5 6; do python3 $T/writer $w & done; wait\n"
        "readlink execs/last\n"
        "cat execs/[0-9]*/command | sort | uniq -d | wc -l\n"
        "cat execs/[0-9]*/command | grep -vc '^echo [1-6]-[0-9]*-x*$'\n"
        "true",
        "1200\n0\n0\n");
}

static long daemon_peak_kib(void)
{
    char path[64];
    const char *at;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)mnt.pid);
    at = strstr(text_of(path), "VmHWM:");
    assert_non_null(at);
    return strtol(at + 6, NULL, 10);
}

static void two_hundred_megabytes_on_both_streams_are_exact(void **state)
{
    long before;

    (void)state;
    put_ok(in("exec"), "seq 100000");
    expect_text(in("execs/1/exit_code"), "0\n");
    before = daemon_peak_kib();
    expect_shell("echo 'seq 12500000 & seq 12500000 >&2; wait' > exec\n"
                 "want=$(seq 12500000 | sha1sum)\n"
                 "for f in stdout stderr; do\n"
                 "  [ \"$(sha1sum < execs/2/$f)\" = \"$want\" ] && echo $f\n"
                 "done; wc -c < execs/2/output; stat -c %s execs/2/output\n"
                 "[ \"$(sha1sum < exec)\" = \"$(sha1sum < execs/2/output)\" ] "
                 "&& echo same",
                 "stdout\nstderr\n202777794\n202777794\nsame\n");
    if (daemon_peak_kib() > before + ROOM_KIB) {
        fail_msg("from %ld KiB to %ld KiB", before, daemon_peak_kib());
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(a_thousand_commands_of_one_shell_run_once_and_in_order),
    e2e_test(a_thousand_commands_of_five_shells_run_once_and_in_order),
    e2e_test(six_writers_at_once_read_their_own_results),
    e2e_test_of("local", two_hundred_megabytes_on_both_streams_are_exact),
};

E2E_MAIN(tests)
