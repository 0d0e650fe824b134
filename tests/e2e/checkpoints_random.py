"""Random changes of a workspace, of which every checkpoint is told apart right.

usage: checkpoints_random.py SESSION SEED

What `changes` says of two checkpoints, of a command and of the base is what a
walk of both trees finds; and a restore gives the very tree.
"""
import os
import random
import stat
import sys

from control_file import put

session, seed = sys.argv[1], int(sys.argv[2])
rand = random.Random(seed)
work = os.path.join(session, "workspace")
names = ["a", "b", "c", "d"]


def put_in(name, text):
    put(os.path.join(session, name), text)


def some(top):
    path = rand.choice(names)
    while rand.random() < 0.6:
        path = os.path.join(path, rand.choice(names))
    return os.path.join(top, path)


def step(top):
    """One change; what cannot be done is none."""
    path, other = some(top), some(top)
    op = rand.randrange(11)
    try:
        if op <= 2:
            with open(path, "w") as f:
                f.write(rand.choice("xyz") * rand.randrange(5))
        elif op <= 4:
            os.mkdir(path)
        elif op == 5:
            os.remove(path)
        elif op == 6:
            os.rmdir(path)
        elif op == 7:
            os.rename(path, other)
        elif op == 8:
            os.chmod(path, rand.choice([0o700, 0o755, 0o711]))
        elif op == 9:
            os.symlink(rand.choice(names), path)
        else:
            os.link(path, other)
    except OSError:
        pass


def tree_of(top):
    """Each path: what counts of it."""
    found = {}
    for where, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(where, name)
            attr = os.lstat(path)
            what = None
            if stat.S_ISLNK(attr.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(attr.st_mode):
                with open(path, "rb") as f:
                    what = f.read()
            found[os.path.relpath(path, top)] = (attr.st_mode, what)
    return found


def differ(a, b):
    """The lines that are right."""
    lines = set()
    gone = set()
    for path in sorted(a):
        if os.path.dirname(path) in gone:
            gone.add(path)
        elif path not in b or (stat.S_ISDIR(a[path][0]) !=
                               stat.S_ISDIR(b[path][0])):
            gone.add(path)
            lines.add(("D", path))
    for path in b:
        if path not in a or path in gone:
            lines.add(("A", path))
        elif a[path] != b[path]:
            lines.add(("M", path))
    return lines


def told(name):
    with open(os.path.join(session, name)) as f:
        return {tuple(line.rstrip("\n").split("\t")) for line in f}


def expect(name, a, b):
    got, want = told(name), differ(a, b)
    if got != want:
        sys.exit("seed %d, %s: told %s, not %s" %
                 (seed, name, sorted(got - want), sorted(want - got)))


def shell_step():
    """Changes in a command: sh has no way to say all that step() does."""
    lines = []
    for _ in range(rand.randrange(1, 6)):
        path, other = some("."), some(".")
        lines.append(rand.choice([
            "echo %d > %s" % (rand.randrange(3), path), "mkdir " + path,
            "rm -rf " + path, "mv -T %s %s" % (path, other),
            "cp -a %s %s" % (path, other), "chmod 700 " + path,
            "ln -s x " + path]))
    put_in("exec", "(%s) 2>/dev/null; true" % "; ".join(lines))


def main():
    trees = {"base": {}}
    put_in("exec", "true")
    for i in range(25):
        if rand.random() < 0.5:
            shell_step()
        else:
            for _ in range(rand.randrange(1, 8)):
                step(work)
        name = "r%d" % i
        os.mkdir(os.path.join(session, "checkpoints", name))
        trees[name] = tree_of(os.path.join(session, "checkpoints", name))
        now = tree_of(work)
        assert trees[name] == now, (seed, name, differ(trees[name], now))
        one = rand.choice(sorted(trees))
        expect("changes/%s..%s" % (one, name), trees[one], trees[name])
        other = rand.choice(sorted(trees))
        if other != "base":
            expect("changes/%s..%s" % (one, other), trees[one], trees[other])
        expect("changes/base", {}, now)
        if rand.random() < 0.2 and other != "base":
            put_in("restore", other)
            now = tree_of(work)
            assert now == trees[other], (seed, differ(trees[other], now))
            expect("changes/base", {}, now)


main()
