/*
 * Checkpoints of `local`, which are layers of an overlay: what a workload does
 * to the kernel's notes about them, names of one file in a lower one, memory
 * that is written unseen, and random changes of all kinds.
 */
#include "tests/e2e/tools.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ROUND = 200, /* Changes: within a test's deadline also at a high load. */
};

static int changes = 2000;
static int seed = 1;

/* run SCRIPT: as a command, whose output is told. */
#define RUN "run() { printf '%s' \"$1\" > exec; cat exec; }\n"

static const struct script notes[] = {
    {"a workload's attributes hide nothing, and stay",
     RUN "run 'mkdir d e; echo 1 > d/x; echo 2 > e/y'\n"
         "mkdir checkpoints/a; echo a > restore\n"
         "run 'python3 - <<\"END\"\n"
         "import os\n"
         "os.setxattr(\"d\", \"user.overlay.opaque\", b\"y\")\n"
         "os.setxattr(\"e\", \"user.overlay.redirect\", b\"/d\")\n"
         "os.setxattr(\"d/x\", \"user.overlay.whiteout\", b\"\")\n"
         "END'\n"
         "mkdir checkpoints/b; (cd checkpoints/b; find * | sort)\n"
         "cat changes/a..b; echo b > restore; cd workspace; cat d/x e/y\n"
         "python3 -c 'import os; print(os.getxattr(\"d\", "
         "\"user.overlay.opaque\"),\n"
         " os.listxattr(\"e\"), os.listxattr(\"d/x\"))'\n",
     "d\nd/x\ne\ne/y\n1\n2\n"
     "b'y' ['user.overlay.redirect'] ['user.overlay.whiteout']\n"},
};

/* Each changes b; a and c are looked at first, through all that caches. */
#define NAMES(change)                                                          \
    RUN "run 'echo one > a; ln a b; ln a c'\n"                                 \
        "mkdir checkpoints/a; echo a > restore; cd workspace; cat a b c "      \
        ">/dev/"                                                               \
        "null\n"                                                               \
        "exec 3<a; " change "\n"                                               \
        "for f in a c; do cat $f; stat -c '%s %a' $f; done; cat <&3; cd ..\n"  \
        "run 'cat a c'\n"                                                      \
        "mkdir checkpoints/b; (cd checkpoints/b; cat a c; stat -c %a a c)\n"

#define STAYS "one\n4 644\none\n4 644\none\none\none\none\none\n644\n644\n"

static const struct script names[] = {
    {"a name of a file below is parted by a write", NAMES("echo two >> b"),
     STAYS},
    {"... by a truncation", NAMES("echo two > b"), STAYS},
    {"... by a mode", NAMES("chmod 600 b"), STAYS},
    {"... by one name more", NAMES("ln b d; echo two >> d; cmp b d"), STAYS},
    {"... by a new name", NAMES("mv b d; echo two >> d"), STAYS},
    {"... by a command",
     NAMES("cd ..; run 'echo two >> b'; cd workspace; wc -l < b"), "2\n" STAYS},
    {"names of one file that was made here stay names of one",
     RUN
     "run 'echo one > a; ln a b'; cd workspace; cat a b; echo two >> a; cat b\n"
     "stat -c %h a b; ln b c; echo three >> c; cat a\n"
     "test a -ef c && echo same\n",
     "one\none\none\ntwo\n2\n2\none\ntwo\nthree\nsame\n"},
    {"a name of a symbolic link below is parted as well",
     RUN "run 'ln -s t a; ln -P a b; touch -h -d @5 a'\n"
         "mkdir checkpoints/a; echo a > restore; cd workspace\n"
         "stat -c %Y a b; touch -h -d @9 b; stat -c %Y a b; cd ..\n"
         "mkdir checkpoints/b; cd checkpoints/b; stat -c %Y a b\n",
     "5\n5\n5\n9\n5\n9\n"},
    {"names of one symbolic link are names of one in a checkpoint",
     RUN "run 'ln -s t a; ln -P a b; mkdir d; ln -P b d/c'\n"
         "mkdir checkpoints/a; cd checkpoints/a; stat -c %h a b d/c\n"
         "stat -c %i a b d/c | sort -u | wc -l\n",
     "3\n3\n3\n1\n"},
};

static const struct script memory[] = {
    {"what could only be read for a while is looked at again",
     RUN
     "run 'printf %4096d 0 > f; cat > p.py <<END\n"
     "import ctypes, mmap, os, time\n"
     "libc = ctypes.CDLL(None)\n"
     "def wait(name):\n"
     "    while not os.path.exists(name): time.sleep(0.01)\n"
     "file = open(\"f\", \"r+b\")\n"
     "m = mmap.mmap(file.fileno(), 4096)\n"
     "at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)))\n"
     "m[0:3] = b\"one\"\n"
     "libc.mprotect(at, 4096, 1)\n"
     "open(\"did-one\", \"w\")\n"
     "wait(\"do-two\")\n"
     "libc.mprotect(at, 4096, 3)\n"
     "m[0:3] = b\"two\"\n"
     "open(\"did-two\", \"w\")\n"
     "os._exit(0)\n"
     "END\n"
     "setsid python3 p.py >/dev/null 2>&1 &'\n"
     "until [ -e workspace/did-one ]; do sleep 0.02; done\n"
     "mkdir checkpoints/a; : > workspace/do-two\n"
     "until [ -e workspace/did-two ]; do sleep 0.02; done\n"
     "mkdir checkpoints/b\n"
     "for c in a b; do head -c 3 checkpoints/$c/f; echo; done\n",
     "one\ntwo\n"},
};

static void notes_are_the_kernels_alone(void **state)
{
    (void)state;
    expect_scripts(notes, ARRAY_SIZE(notes));
}

static void names_of_a_file_below_are_parted(void **state)
{
    (void)state;
    expect_scripts(names, ARRAY_SIZE(names));
}

static void memory_is_looked_at(void **state)
{
    (void)state;
    expect_scripts(memory, ARRAY_SIZE(memory));
}

/* In rounds, each by a seed of its own and in a new session. */
static void each_stays_what_it_was(void **state)
{
    char command[3 * MNT_PATH_SIZE];

    for (int done = 0; done < changes; done += ROUND) {
        int rest = changes - done;

        (void)snprintf(command, sizeof(command), "python3 -B %s %s %d %d",
                       SESSIONFS_MODEL_PY, mnt.session, seed + done / ROUND,
                       rest < ROUND ? rest : ROUND);
        assert_int_equal(system(command), 0);
        (void)e2e_setup(state); /* A new deadline and session. */
    }
}

static const struct CMUnitTest tests[] = {
    e2e_test(notes_are_the_kernels_alone),
    e2e_test(names_of_a_file_below_are_parted),
    e2e_test(memory_is_looked_at),
    e2e_test(each_stays_what_it_was),
};

int main(int argc, char **argv)
{
    changes = argc > 2 ? atoi(argv[2]) : changes;
    seed = argc > 3 ? atoi(argv[3]) : seed;
    return e2e_run(argc > 2 ? 2 : argc, argv, tests, ARRAY_SIZE(tests));
}
