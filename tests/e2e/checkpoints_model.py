"""Checkpoints against a model: each must be for ever what the workspace was.

usage: checkpoints_model.py SESSION SEED STEPS

Each step changes the workspace in some random way, by a command or through the
mount, and then looks at all of it: bytes, modes, owners, sizes, times of
change, attributes, targets, and which names are of one file. What is seen is
compared with each checkpoint, also later, after restores, forks and drops.
"""
import ctypes
import hashlib
import json
import os
import random
import stat
import sys

from control_file import put

# Runs in the directory that it changes, there or in the sandbox.
CHANGES = r'''
import mmap, os, random, shutil, socket, sys
r = random.Random(int(sys.argv[1]))
def walk():
    found = []
    for d, ds, fs in os.walk("."):
        ds.sort()
        found.append((d, sorted(fs)))
    return found
def dirs(): return [d for d, _ in walk()]
def files(): return [os.path.join(d, f) for d, fs in walk() for f in fs]
def links(): return [f for f in files() if os.path.islink(f)]
def regular():
    return [f for f in files() if os.path.isfile(f) and not os.path.islink(f)]
NAMES = ["n%d" % i for i in range(20)] + ["a\nb", "\\012", "-x", "l" * 255,
    ".wh.n1", "upper", " deleted (deleted)", b"\xff\x01".decode("utf-8",
    "surrogateescape")]
def new(): return os.path.join(r.choice(dirs()), r.choice(NAMES))
def data():
    return r.getrandbits(80).to_bytes(10, "big") * r.choice([0, 1, 1, 500,
        7000])
def create():
    p = new()
    if os.path.exists(p) and not os.path.isfile(p): return
    with open(p, "wb") as f: f.write(data())
def append():
    with open(r.choice(regular()), "ab") as f: f.write(data())
def patch():
    with open(r.choice(regular()), "r+b") as f:
        f.seek(r.randrange(5000)); f.write(b"patched")
def truncate():
    os.truncate(r.choice(regular()), r.choice([0, 1, 4096, 100000]))
def store():
    with open(r.choice(regular()), "r+b") as f:
        n = os.fstat(f.fileno()).st_size
        with mmap.mmap(f.fileno(), n) as m: m[r.randrange(n)] = r.randrange(256)
def sparse():
    p = new()
    if os.path.exists(p) and not os.path.isfile(p): return
    with open(p, "wb") as f:
        f.seek(r.randrange(1 << 22)); f.write(data())
        f.truncate(f.tell() + r.choice([0, 8192]))
# From 4 MiB on only what changes of a file is kept.
def bigs(): return [f for f in regular() if os.stat(f).st_size >= 4 << 20]
def big():
    p = new()
    if os.path.exists(p) and not os.path.isfile(p): return
    if len(bigs()) < 2:
        with open(p, "wb") as f: f.write(r.randbytes(5 << 20))
def patch_big():
    with open(r.choice(bigs()), "r+b") as f:
        n = os.fstat(f.fileno()).st_size
        for _ in range(r.choice([1, 20])):
            f.seek(r.randrange(n)); f.write(data()[:5000])
def store_big():
    with open(r.choice(bigs()), "r+b") as f:
        with mmap.mmap(f.fileno(), 0) as m:
            m[r.randrange(len(m))] = r.randrange(256)
def resize_big():
    p = r.choice(bigs())
    os.truncate(p, os.stat(p).st_size + r.choice([-4097, -1, 1, 9000]))
def rename():
    p = r.choice(files() + dirs()[1:])
    if os.path.isdir(p) or os.lstat(p).st_nlink == 1: os.rename(p, new())
def over():
    p, q = r.choice(files()), r.choice(files())
    if os.lstat(p).st_nlink == 1: os.rename(p, q)
def move_into():
    p, d = r.choice(dirs()[1:]), r.choice(dirs())
    os.rename(p, os.path.join(d, r.choice(NAMES)))
def round_trip():
    p = r.choice(dirs()[1:] + files())
    os.rename(p, "n-away"); os.rename("n-away", p)
def exchange():
    import ctypes
    p, q = r.choice(dirs()[1:] + files()), r.choice(dirs()[1:] + files())
    if os.path.isdir(p) or os.lstat(p).st_nlink == 1:
      if os.path.isdir(q) or os.lstat(q).st_nlink == 1:
        ctypes.CDLL(None).renameat2(-100, os.fsencode(p), -100, os.fsencode(q),
                                    2)
def link():
    if sys.argv[3] != "links": return
    p = r.choice(regular() + links())
    os.link(p, os.path.join(os.path.dirname(p), r.choice(NAMES)),
        follow_symlinks=False)
def symlink(): os.symlink("t" * r.choice([3, 100, 3000]), new())
def fifo(): os.mkfifo(new())
def sock():
    here = os.getcwd()
    os.chdir(r.choice(dirs()))
    try:
        s = socket.socket(socket.AF_UNIX); s.bind(r.choice(NAMES)[:90])
        s.close()
    finally: os.chdir(here)
def mkdir(): os.mkdir(new())
def deep():
    p = new()
    os.makedirs(os.path.join(p, *[r.choice(NAMES[:3]) for _ in range(4)]))
def fill():
    d = r.choice(dirs())
    for n in NAMES[:12]:
        p = os.path.join(d, n)
        if not os.path.lexists(p):
            with open(p, "wb") as f: f.write(data())
def again():
    d = r.choice(dirs()[1:]); shutil.rmtree(d); os.mkdir(d)
    with open(d + "/n1", "w") as f: f.write("again")
def swap():
    d = r.choice(dirs()[1:]); shutil.rmtree(d)
    with open(d, "w") as f: f.write("swapped")
def into():
    f = r.choice(files()); os.unlink(f); os.mkdir(f)
def whole():
    f = r.choice(files()); os.unlink(f); os.mkdir(f); os.rmdir(f)
def chmod():
    os.chmod(r.choice(regular()), r.choice([0o600, 0o755, 0o444, 0o4755,
        0o2711, 0o640]))
def chmod_dir():
    os.chmod(r.choice(dirs()), r.choice([0o700, 0o2755, 0o1777, 0o755]))
def chown():
    if os.geteuid() == 0:
        os.chown(r.choice(files() + dirs()[1:]), r.choice([0, 1, 65000]),
            r.choice([0, 7]), follow_symlinks=False)
KEYS = ["user.k", "user.overlay.opaque", "user.overlay.redirect",
    "user.overlay.whiteout", "user.overlay.origin", "user.overlay.metacopy"]
def xattr():
    k = r.choice(KEYS + ["user.k"] * 4)
    os.setxattr(r.choice(regular() + dirs()), k,
        r.choice([b"y", b"x", b"/n1", data()[:20], b""]))
def unxattr():
    p = r.choice(regular() + dirs())
    for k in os.listxattr(p): os.removexattr(p, k)
def acl():
    os.setxattr(r.choice(dirs()), "system.posix_acl_" + r.choice(["access",
        "default"]), bytes.fromhex("0200000001000700ffffffff02000600f4010000"
        "04000500ffffffff10000700ffffffff20000500ffffffff"))
def utime():
    os.utime(r.choice(files()), ns=(1, r.randrange(1 << 61)),
        follow_symlinks=False)
def utime_dir(): os.utime(r.choice(dirs()), ns=(1, r.randrange(1 << 60)))
def same_size():
    p = r.choice(regular()); s = os.stat(p)
    with open(p, "r+b") as f: f.write(r.randbytes(min(s.st_size, 10)))
    os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))
def unlink(): os.unlink(r.choice(files()))
def rmtree(): shutil.rmtree(r.choice(dirs()[1:]))
ops = [create] * 6 + [append, patch, truncate, store, sparse, same_size] * 2 + [
    rename] * 4 + [over, move_into, round_trip, exchange, link, link, symlink,
    fifo, sock, mkdir, mkdir, deep, fill, again, swap, into, whole, chmod,
    chmod_dir, chown, xattr, xattr, unxattr, acl, utime, utime_dir, unlink,
    unlink, rmtree, big, patch_big, store_big, resize_big]
def clear():
    for p in os.listdir("."):
        if os.path.isdir(p) and not os.path.islink(p): shutil.rmtree(p)
        else: os.unlink(p)
if len(files()) > 250: clear()
for _ in range(int(sys.argv[2])):
    try: r.choice(ops)()
    except (OSError, IndexError, ValueError, shutil.Error): pass
'''

STEP_OPS = 10
LIVE = 40  # Checkpoints that are looked at again.


def look(top):
    """Each path: all that must stay."""
    found, inodes = {}, {}
    stack = [""]
    while stack:
        rel = stack.pop()
        path = os.path.join(top, rel) if rel else top
        st = os.lstat(path)
        kind = stat.S_IFMT(st.st_mode)
        what, names = None, None
        if kind == stat.S_IFDIR:
            stack += [os.path.join(rel, n) for n in os.listdir(path)]
        elif kind == stat.S_IFLNK:
            what = os.readlink(path)
        elif kind == stat.S_IFREG:
            with open(path, "rb") as f:
                what = hashlib.md5(f.read()).hexdigest()
        xattrs = {}
        if kind in (stat.S_IFDIR, stat.S_IFREG):
            xattrs = {k: os.getxattr(path, k) for k in os.listxattr(path)}
        if kind in (stat.S_IFREG, stat.S_IFLNK):
            names = inodes.setdefault(st.st_ino, [])
            names.append(rel)
        size = st.st_size if kind != stat.S_IFDIR else 0
        found[rel] = [st.st_mode, st.st_uid, st.st_gid, size, st.st_mtime_ns,
                      what, xattrs, names]
    for entry in found.values():
        if entry[7]:
            entry[7] = sorted(entry[7])
    return found


# A user who is not root has an overlay that makes two files of the names of
# one, once it has been copied from a layer.
LINKS = "links" if os.geteuid() == 0 else "none"


def same(got, want):
    """Whether both are the same. An overlay that is written to may give names
    of one file different numbers; a checkpoint has them as they are."""
    return got.keys() == want.keys() and all(
        got[path][:7] == entry[:7] and
        set(entry[7] or ()) <= set(got[path][7] or ())
        for path, entry in want.items())


class Model:
    def __init__(self, session, seed):
        self.top = os.path.dirname(session)
        self.session, self.seed = session, seed
        self.rand = random.Random(seed)
        self.number = 0
        self.kept = {}
        self.ops = 0
        self.by_command = False

    def at(self, *parts):
        return os.path.join(self.session, *parts)

    def put(self, name, text):
        put(self.at(name), text)

    def fail(self, words, got, want):
        print("seed %d, %d changes: %s" % (self.seed, self.ops, words))
        for path in sorted(set(got) | set(want)):
            if got.get(path) != want.get(path):
                print("  %r\n    is   %s\n    was  %s" %
                      (path, got.get(path), want.get(path)))
        sys.exit(1)

    def check(self, top, want, words):
        got = look(top)
        if not same(got, want):
            self.fail(words, got, want)

    def change(self):
        seed = str(self.rand.randrange(1 << 30))
        self.by_command = self.rand.random() < 0.5
        if self.by_command:
            ask = {"argv": ["python3", "-c", CHANGES, seed, str(STEP_OPS),
                            LINKS]}
            fd = os.open(self.at("exec.json"), os.O_RDWR)
            try:
                os.write(fd, json.dumps(ask).encode())
                answer = b""
                while piece := os.read(fd, 65536):
                    answer += piece
            finally:
                os.close(fd)
            answer = json.loads(answer)
            if answer["exit_code"] != 0:
                self.fail("exec: %s" % answer, {}, {})
        else:
            pid = os.fork()
            if pid == 0:
                os.chdir(self.at("workspace"))
                os.umask(0o22)
                sys.argv = ["", seed, str(STEP_OPS), LINKS]
                try:
                    exec(CHANGES, {})
                    os._exit(0)
                except BaseException as e:
                    print(repr(e), flush=True)
                    os._exit(1)
            if os.waitpid(pid, 0)[1] != 0:
                self.fail("changes through the mount", {}, {})
        self.ops += STEP_OPS

    def name(self):
        self.number += 1
        return "m%d" % self.number

    def step(self):
        self.change()
        name = self.name()
        os.mkdir(self.at("checkpoints", name))
        tree = look(self.at("workspace"))
        if not self.by_command:
            # The kernel may keep a number for as long as nothing else changes.
            tree = {path: e[:7] + [None] for path, e in tree.items()}
        self.kept[name] = tree
        self.check(self.at("checkpoints", name), tree, name)
        roll = self.rand.random()
        if roll < 0.1:
            self.look_back()
        elif roll < 0.2:
            self.go_back()
        elif roll < 0.25:
            self.fork()
        while len(self.kept) > LIVE:
            self.drop(self.rand.choice(sorted(self.kept)))

    def look_back(self):
        some = self.rand.choice(sorted(self.kept))
        self.check(self.at("checkpoints", some), self.kept[some],
                   "%s later" % some)

    def go_back(self):
        some = self.rand.choice(sorted(self.kept))
        self.put("restore", some)
        self.check(self.at("workspace"), self.kept[some], "restored " + some)

    def drop(self, some):
        self.put("checkpoints.log", "drop " + some)
        del self.kept[some]

    def end(self, session):
        with open(os.path.join(session, "status"), "w") as f:
            f.write("absent")
        os.rmdir(session)

    def fork(self):
        """The fork is looked at, and then all goes on in it at times."""
        some = self.rand.choice(sorted(self.kept))
        new = "f%d.%d" % (self.seed, self.number)
        self.put("fork", "%s %s" % (new, some))
        fork = os.path.join(self.top, new)
        self.check(os.path.join(fork, "workspace"), self.kept[some],
                   "forked " + some)
        gone = fork
        if self.rand.random() < 0.5:
            gone, self.session, self.kept = self.session, fork, {}
        self.end(gone)


def main():
    model = Model(sys.argv[1], int(sys.argv[2]))
    model.put("status", "running")
    while model.ops < int(sys.argv[3]):
        model.step()
    for name in sorted(model.kept):
        model.check(model.at("checkpoints", name), model.kept[name], name)
    model.end(model.session)
    print(model.ops, "changes,", model.number, "checkpoints")


main()
