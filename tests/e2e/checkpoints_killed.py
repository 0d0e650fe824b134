"""What checkpoints_killed.c does while daemons die, and what it finds after.

usage: checkpoints_killed.py begin|work|check SESSION JOURNAL PROVIDER

The journal has a line for each thing that was asked for, before it is, and one
when it was told that it succeeded. Each command writes a number of its own to
the file f, so that the tree of a checkpoint is known by it. Of those without a
name the newest stay. Some commands of `local` write so many files that these
become the checkpoint themselves; all of them are there, or none.
"""
import errno
import json
import os
import random
import sys

from control_file import put

what, session, journal, provider = sys.argv[1:]
sessions = os.path.dirname(session)
shell = "echo %d > f" if provider == "local" else "write f %d"
KEEP = 15
MANY = 2100


def at(*parts):
    return os.path.join(session, *parts)


def note(**entry):
    with open(journal, "a") as f:
        f.write(json.dumps(entry) + "\n")


def entries():
    try:
        with open(journal) as f:
            return [json.loads(line) for line in f]
    except FileNotFoundError:
        return []


def count(path):
    try:
        return len(os.listdir(path))
    except FileNotFoundError:
        return 0


def labels():
    return [line.split()[0] for line in open(at("checkpoints.log"))]


def command(n, more=""):
    note(op="exec", n=n)
    fd = os.open(at("exec.json"), os.O_RDWR)
    try:
        os.write(fd, json.dumps({"command": shell % n + more}).encode())
        answer = json.loads(os.read(fd, 65536))
    finally:
        os.close(fd)
    if answer["status"] == "exited":
        note(op="exec", n=n, key=str(answer["checkpoint"]))


def many(n):
    command(n, "; rm -rf new old; mkdir new; (cd new; seq %d | xargs touch); "
            "mv m old 2>/dev/null; mv new m" % MANY
            if provider == "local" else "")


def act(n, op, some):
    if op == "exec" or not some:
        command(n)
    elif op == "many":
        many(n)
    elif op == "name":
        note(op="name", name="n%d" % n)
        os.mkdir(at("checkpoints", "n%d" % n))
        note(op="name", name="n%d" % n, done=True)
    elif op == "restore":
        note(op="restore", name=some)
        put(at("restore"), some)
        note(op="restore", name=some, done=True)
    elif op == "drop":
        note(op="drop", name=some)
        put(at("checkpoints.log"), "drop " + some)
        note(op="drop", name=some, done=True)
    elif op == "write":
        with open(at("workspace", "w"), "w") as f:
            f.write("%d\n" % n)
    else:
        fork = os.path.join(sessions, "fork%d" % n)
        put(at("fork"), "fork%d %s" % (n, some))
        note(op="fork", name="fork%d" % n, done=True)
        put(os.path.join(fork, "status"), "absent")
        os.rmdir(fork)
        note(op="fork", name="fork%d" % n, gone=True)


OPS = ["exec"] * 8 + ["name", "restore", "drop", "fork", "write"] * 2 + ["many"]


def is_gone(e, some):
    """It was one too many, or the daemon died while we looked."""
    try:
        return e.errno == errno.ENOENT and some not in labels()
    except OSError:
        return True


def begin():
    with open(at("config.json")) as f:
        config = json.load(f)
    config["checkpoints_keep"] = KEEP
    with open(at("config.json"), "w") as f:
        json.dump(config, f)


def work():
    n = sum("n" in entry for entry in entries()) * 100 + 1
    while True:
        n += 1
        some = None
        try:
            known = labels()
            some = random.choice(known) if known else None
            act(n, random.choice(OPS), some)
        except OSError as e:
            # Nobody answers any more, or a sandbox died with its daemon.
            if not os.path.exists(at("status")):
                return
            if e.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO,
                               errno.ESTALE) and not is_gone(e, some):
                raise


def text_of(path):
    try:
        with open(path) as f:
            return f.read()
    except FileNotFoundError:
        return None


def listing():
    """What is listed; the oldest may go meanwhile."""
    known = None
    while known != labels():
        known = labels()
        listed = os.listdir(at("checkpoints"))
    assert sorted(known) == sorted(listed), (known, listed)
    return known


def check():
    asked = entries()
    known = listing()
    assert len(set(known)) == len(known), known
    dropped = {e["name"] for e in asked if e["op"] == "drop"}
    gone = {e["name"] for e in asked if e["op"] == "drop" and "done" in e}
    assert not gone & set(known), gone & set(known)
    numbers = {str(e["n"]) + "\n" for e in asked if e["op"] == "exec"}
    for label in known:
        f = text_of(at("checkpoints", label, "f"))
        assert f is None or f in numbers, (label, f)
    ever = {int(l) for l in dropped | set(known) if l.isdigit()}
    for e in asked:
        if "key" in e and e["key"] not in dropped:
            f = text_of(at("checkpoints", e["key"], "f"))
            newer = sum(key > int(e["key"]) for key in ever)
            old = newer >= KEEP - 1 and e["key"] not in labels()
            assert f == "%d\n" % e["n"] or old, (e, f, known)
        if e["op"] == "name" and "done" in e and e["name"] not in dropped:
            assert e["name"] in known, (e, known)
    for name in os.listdir(sessions):
        if name.startswith("fork"):
            # It is whole: it appears when it is complete.
            fork = os.path.join(sessions, name)
            first = os.path.join(fork, "checkpoints", "1")
            if os.path.exists(first):
                f = text_of(os.path.join(first, "f"))
                assert f is None or f in numbers, (name, f)
            put(os.path.join(fork, "status"), "absent")
            os.rmdir(fork)
    # All goes on, with a number of its own.
    before = [int(label) for label in known if label.isdigit()]
    put(at("status"), "running")
    f = text_of(at("workspace", "f"))
    assert f is None or f in numbers, f
    some = random.choice(known) if known else "none"
    for m in at("checkpoints", some, "m"), at("workspace", "m"):
        assert count(m) in (0, MANY), (m, count(m))
    n = 1000000 + len(asked)
    command(n)
    last = entries()[-1]
    assert last["n"] == n and "key" in last, last
    assert not before or int(last["key"]) > max(before), (last, before)
    assert text_of(at("workspace", "f")) == "%d\n" % n
    print(sum("done" in e or "key" in e for e in asked))


{"begin": begin, "work": work, "check": check}[what]()
