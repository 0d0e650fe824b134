"""Checks what is said to differ between two trees: THEN NOW FILE.

FILE has "KIND path" for each change, each with a NUL behind.
"""

import os
import stat
import sys


def tree(top):
    """All that is in a directory: its bytes, target or device, and its mode."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as file:
                    what = file.read()
            else:
                what = b""
            found[os.path.relpath(path, top)] = (st.st_mode, what)
    return found


def expected(then, now):
    """The changes, as core/provider.h defines them."""
    out = set()
    gone = set()
    for path in sorted(then):
        was = then[path]
        same_kind = path in now and stat.S_ISDIR(was[0]) == stat.S_ISDIR(
            now[path][0]
        )
        if os.path.dirname(path) in gone:
            gone.add(path)
        elif not same_kind:
            out.add("D " + path)
            gone.add(path)
        elif was != now[path]:
            out.add("M " + path)
    for path in now:
        if path not in then or path in gone:
            out.add("A " + path)
    return out


def main():
    told = open(sys.argv[3], "rb").read().decode().split("\0")[:-1]
    want = expected(tree(sys.argv[1]), tree(sys.argv[2]))
    for line in sorted(want ^ set(told)):
        print("missing:" if line in want else "wrong:", line)
    sys.exit(want != set(told) or len(told) != len(want))


main()
