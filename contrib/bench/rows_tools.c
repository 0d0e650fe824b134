/* What programs do with a tree of sources. See bench.h. */
#include "contrib/bench/bench.h"

/* A row of one shell command, and of what comes before it. */
#define STEP(name, command)                                                    \
    static int name(const struct scale *scale)                                 \
    {                                                                          \
        (void)scale;                                                           \
        return shell(command);                                                 \
    }

STEP(no_copy, "rm -rf copy")
STEP(a_copy, "rm -rf copy && cp -a tree copy")
STEP(untar, "mkdir copy && tar -xf \"$SOURCES/tree.tar\" -C copy")
STEP(tar, "tar -cf - tree | cat >/dev/null")
STEP(copy, "cp -a tree copy")
STEP(find, "find tree -type f -size +1 -name '*.txt'")
STEP(grep, "grep -r 'no such line' tree; [ $? -eq 1 ]")
STEP(remove_tree, "rm -rf copy")
STEP(clone, "git clone -q --no-hardlinks \"$SOURCES/repo.git\" copy")
STEP(status, "git -C repo status --porcelain")
/* A line more in each file of a tenth of the directories. */
STEP(edit, "git -C repo reset -q --hard first && "
           "for file in repo/d*0/*; do echo more >>\"$file\" || exit; done")
STEP(commit, "git -C repo commit -q -a -m second")
STEP(make_clean, "make -s -C project clean")
STEP(make, "make -s -j2 -C project")
STEP(make_again, "for i in 1 2 3 4; do make -q -C project || exit; done")

const struct row rows_tools[] = {
    {"untar", "the source tree", KIND_TOOLS, no_copy, untar, NULL},
    {"tar", "the source tree", KIND_TOOLS, tar, tar, NULL},
    {"cp -a", "the source tree", KIND_TOOLS, no_copy, copy, NULL},
    {"find", "by type, size and name", KIND_TOOLS, find, find, NULL},
    {"grep -r", "the source tree", KIND_TOOLS, grep, grep, NULL},
    {"rm -rf", "the source tree", KIND_TOOLS, a_copy, remove_tree, NULL},
    {"git clone", "the source tree", KIND_TOOLS, no_copy, clone, NULL},
    {"git status", "nothing changed", KIND_TOOLS, status, status, NULL},
    {"git commit", "a tenth changed", KIND_TOOLS, edit, commit, NULL},
    {"make", "-j2, all anew", KIND_TOOLS, make_clean, make, NULL},
    {"make again", "nothing to do, four times", KIND_TOOLS, make, make_again,
     NULL},
    {NULL, NULL, KIND_TOOLS, NULL, NULL, NULL},
};
