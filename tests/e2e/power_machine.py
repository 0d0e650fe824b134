"""The machine whose power power_cuts.py cuts: what it does, and what it expects
to find when it is on again.

usage: power_machine.py PROGRAM WHERE DEVICE KIND OPTIONS MODE SEED [last]
"""
import contextlib
import errno
import json
import os
import random
import stat
import subprocess
import sys
import time
import traceback

from control_file import put

WAIT_S = 60
CUT_OFF = b"starting\n", b"deleting\n"
MANY = 2500  # Files, from which on a checkpoint takes the directory as it is.


def run(*words):
    subprocess.run(words, check=True)


def text_of(n):
    return "".join("%d\n" % i for i in range(n))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def tree_of(top):
    """Of each file [lines, mode, time], or what else it holds."""
    files = {}
    for place, _, names in os.walk(top, onerror=fail_walk):
        if place == os.path.join(top, "many"):
            files["many"] = len(names)
            continue
        for name in names:
            path = os.path.join(place, name)
            attr = os.lstat(path)
            data = read(path).decode()
            lines = data.count("\n")
            files[os.path.relpath(path, top)] = [
                lines if data == text_of(lines) else data[:200],
                stat.S_IMODE(attr.st_mode), int(attr.st_mtime)]
    return files


def fail_walk(error):
    raise error


# ---- What there should be ----

class Model:
    """Of each session: files; points: what checkpoints hold, by label; execs:
    outputs, by number; was: all that its files ever were."""

    def __init__(self, sessions=None):
        self.sessions = sessions or {}

    def add(self, name, files=None):
        self.sessions[name] = {"files": dict(files or {}), "points": {},
                               "execs": {}, "was": [dict(files or {})]}
        return self.sessions[name]

    def change(self, name, changes):
        session = self.sessions[name]
        session["files"] = changed(session["files"], changes)
        session["was"].append(session["files"])

    def done(self, entry, answer):
        """What was asked for has been done."""
        session = self.sessions.get(entry["session"])
        op = entry["op"]
        if op == "new":
            self.add(entry["session"])
        elif op == "exec":
            self.change(entry["session"], entry["changes"])
            session["execs"][str(answer["id"])] = entry["says"]
            session["points"][str(answer["checkpoint"])] = session["files"]
        elif op == "write":
            # A cut may have left what was to be renamed.
            left = {path + ".new": None for path, value in
                    entry["changes"].items() if value and entry["rename"]}
            self.change(entry["session"], {**entry["changes"], **left})
        elif op == "name":
            session["points"][entry["label"]] = session["files"]
        elif op == "drop":
            del session["points"][entry["label"]]
        elif op == "restore":
            session["files"] = dict(session["points"][entry["label"]])
        elif op == "fork":
            self.add(entry["to"], session["points"][entry["label"]])
        elif op == "move":
            self.sessions[entry["to"]] = self.sessions.pop(entry["session"])
        elif op == "remove":
            del self.sessions[entry["session"]]


def changed(files, changes):
    files = dict(files)
    for path, value in changes.items():
        if value:
            files[path] = value
        else:
            files.pop(path, None)
    return files


# ---- The machine ----

class Machine:
    def __init__(self, program, where, device, kind, options, mode, seed):
        self.program = program
        self.where = where
        self.device = device
        self.kind = kind
        self.options = options
        self.mode = mode
        self.random = random.Random(seed)
        self.sessions = os.path.join(where, "mnt", "sessions")
        self.daemon = None
        self.lost = []  # Checkpoints that are not what they were.

    def at(self, *parts):
        return os.path.join(self.sessions, *parts)

    def boot(self):
        boot = os.path.join(self.where, "boot")
        with open(boot, "w") as f:
            f.write("%08x-0000-4000-8000-000000000000\n" %
                    self.random.getrandbits(32))
        run("mount", "--bind", boot, "/proc/sys/kernel/random/boot_id")
        # Without a whole one no sandbox could have one.
        run("mount", "-t", "proc", "proc", os.path.join(self.where, "proc"))
        run("mount", "-t", self.kind, "-o", self.options, self.device,
            os.path.join(self.where, "disk"))
        here, there = os.pipe()
        options = "state=%s/disk/state,durable=%s" % (self.where, self.mode)
        with open(os.path.join(self.where, "log"), "a") as log:
            self.daemon = subprocess.Popen(
                [self.program, "-f", "-o", options, "--ready-fd", str(there),
                 os.path.join(self.where, "mnt")],
                pass_fds=[there], stderr=log)
        os.close(there)
        assert os.read(here, 1), read(os.path.join(self.where, "log")).decode()
        os.close(here)

    def stop(self):
        self.daemon.terminate()
        assert self.daemon.wait(WAIT_S) == 0

    # ---- Work ----

    def note(self, **entry):
        with open(os.path.join(self.where, "journal"), "a") as f:
            f.write(json.dumps(entry) + "\n")

    def file(self):
        return "%sf%d" % (self.random.choice(["", "", "d/", "d/e/"]),
                          self.random.randrange(6))

    def value(self):
        return [self.random.choice([0, 1, 9, 500, 3000]),
                self.random.choice([0o600, 0o644, 0o755]),
                1000000000 + self.random.randrange(1000000)]

    def changes(self, files, most):
        changes = {}
        for _ in range(self.random.randint(1, most)):
            path = self.file()
            gone = path in files and self.random.random() < 0.2
            changes[path] = None if gone else self.value()
        return changes

    def command(self, entry):
        lines = ["mkdir -p d/e"]
        for path, value in entry["changes"].items():
            if path == "many":
                lines.append("mkdir many; i=0; while [ $i -lt %d ]; do"
                             " : >many/$i; i=$((i + 1)); done" % MANY
                             if value else "rm -r many")
            elif value:
                lines.append("seq 0 %d >%s; chmod %o %s; touch -d @%d %s" %
                             (value[0] - 1, path, value[1], path, value[2],
                              path))
            else:
                lines.append("rm -f %s" % path)
        lines.append("echo %s" % entry["says"])
        fd = os.open(self.at(entry["session"], "exec.json"), os.O_RDWR)
        try:
            os.write(fd, json.dumps({"command": "\n".join(lines)}).encode())
            answer = json.loads(os.read(fd, 65536))
        finally:
            os.close(fd)
        assert answer["status"] == "exited", answer
        assert answer["exit_code"] == 0, answer
        return answer

    def write(self, entry):
        top = self.at(entry["session"], "workspace")
        for path, value in entry["changes"].items():
            path = os.path.join(top, path)
            if not value:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                sync(os.path.dirname(path))
                continue
            new = path + ".new" if entry["rename"] else path
            with open(new, "w") as f:
                f.write(text_of(value[0]))
                f.flush()
                os.fchmod(f.fileno(), value[1])
                os.utime(f.fileno(), (value[2], value[2]))
                os.fsync(f.fileno())
            if entry["rename"]:
                os.rename(new, path)
            sync(os.path.dirname(path))

    def perform(self, entry):
        op = entry["op"]
        session = self.at(entry["session"])
        if op == "new":
            os.mkdir(session)
        elif op == "exec":
            return self.command(entry)
        elif op == "write":
            self.write(entry)
        elif op == "name":
            os.mkdir(os.path.join(session, "checkpoints", entry["label"]))
        elif op == "drop":
            put(os.path.join(session, "checkpoints.log"),
                "drop " + entry["label"])
        elif op == "restore":
            put(os.path.join(session, "restore"), entry["label"])
        elif op == "fork":
            put(os.path.join(session, "fork"),
                "%s %s" % (entry["to"], entry["label"]))
        elif op == "move":
            os.rename(session, self.at(entry["to"]))
        elif op == "remove":
            put(os.path.join(session, "status"), "absent")
            os.rmdir(session)
        return None

    def choose(self, model, n):
        """Something that can be done."""
        names = sorted(model.sessions)
        if not names:
            return {"op": "new", "session": "s%d" % n}
        name = self.random.choice(names)
        session = model.sessions[name]
        entry = {"op": "exec", "session": name, "says": "word%d" % n,
                 "changes": self.changes(session["files"], 4)}
        points = sorted(session["points"])
        if not points:
            return entry
        label = self.random.choice(points)
        op = self.random.choice(
            ["exec"] * 4 + ["write"] * 4 +
            ["many", "name", "name", "restore", "restore", "fork", "drop",
             "drop", "move", "new", "remove"])
        if op == "exec":
            return entry
        if op == "many":
            entry["changes"]["many"] = \
                None if "many" in session["files"] else MANY
            return entry
        if op == "write":
            # In directories that are there.
            places = {os.path.dirname(path) for path in session["files"]}
            changes = {path: value for path, value in
                       self.changes(session["files"], 2).items()
                       if os.path.dirname(path) in places | {""}}
            return {"op": op, "session": name, "changes": changes,
                    "rename": self.random.random() < 0.5}
        entry = {"op": op, "session": name, "label": label}
        if op == "name":
            entry["label"] = "n%d" % n
        elif op == "fork":
            entry["to"] = "s%d" % n
        elif op == "move":
            entry["to"] = "s%d" % n
        elif op == "new":
            entry["session"] = "s%d" % n
        if (op == "remove" and len(names) < 3) or (op == "fork" and
                                                   len(names) > 5):
            entry["op"] = "restore"
        return entry

    def work(self, model):
        n = int(time.monotonic() * 1e6)
        while True:
            n += 1
            entry = self.choose(model, n)
            self.note(**entry)
            answer = self.perform(entry)
            self.note(done=True, answer=answer)
            model.done(entry, answer)

    # ---- Looking ----

    def reborn(self):
        """What is expected, and what was asked for and not answered."""
        model = Model()
        pending = None
        with contextlib.suppress(FileNotFoundError):
            for line in read(os.path.join(self.where, "journal")).splitlines():
                entry = json.loads(line)
                if "model" in entry:
                    model = Model(entry["model"])
                elif "done" in entry:
                    model.done(pending, entry["answer"])
                    pending = None
                else:
                    pending = entry
        return model, pending

    def look(self, model, pending):
        """Compares, and returns what there is."""
        power = self.mode == "power"
        there = Model()
        known = dict(model.sessions)
        pending = pending or {"op": None, "session": None}
        after = Model(json.loads(json.dumps(model.sessions)))
        if pending["op"] in ("restore", "new", "fork", "move", "remove"):
            after.done(pending, None)
        names = sorted(os.listdir(self.sessions))
        if power:
            assert names in (sorted(known), sorted(after.sessions)), \
                (names, sorted(known), pending)
        for name in names:
            # What was cut off while it was made is removed first.
            self.await_status(name, lambda status: status not in CUT_OFF)
            was = known.get(name) or after.sessions.get(name)
            if not was and not power: # A name that was not kept.
                was = self.any_of(known)
            if pending["op"] == "remove" and pending["session"] == name and \
                    read(self.at(name, "status")) == b"absent\n":
                there.add(name)
            else:
                there.sessions[name] = self.look_at(name, was, pending, after)
        return there

    def await_status(self, name, wanted):
        end = time.monotonic() + WAIT_S
        status = read(self.at(name, "status"))
        while not wanted(status):
            assert time.monotonic() < end, (name, status)
            time.sleep(0.005)
            status = read(self.at(name, "status"))

    @staticmethod
    def any_of(known):
        return {"files": {}, "points": {}, "execs": {},
                "was": [files for one in known.values()
                        for files in one["was"]]}

    def look_at(self, name, was, pending, after):
        power = self.mode == "power"
        mine = pending["session"] == name
        found = {"files": {}, "points": {}, "execs": dict(was["execs"]),
                 "was": []}
        history = list(was["was"])
        if mine and pending["op"] in ("exec", "write"):
            history += self.stages(was["files"], pending["changes"])
        labels = os.listdir(self.at(name, "checkpoints"))
        logged = [line.split()[0] for line in
                  read(self.at(name, "checkpoints.log")).decode().splitlines()]
        assert sorted(labels) == sorted(logged), (labels, logged)
        for label in labels:
            try:
                files = tree_of(self.at(name, "checkpoints", label))
            except FileNotFoundError:
                assert not power, (name, label)
                self.lost.append((name, label))
                continue
            assert files in history, (name, label, files, was["files"])
            found["points"][label] = files
        if power:
            self.look_power(name, was, pending, found)
        else:
            found["execs"] = {}
        found["files"] = self.look_files(name, was, found, pending, after)
        found["was"] = [found["files"], *found["points"].values()]
        return found

    @staticmethod
    def stages(files, changes):
        """What it may be while it changes, one file after another."""
        stages = []
        for path, value in changes.items():
            files = changed(files, {path: value})
            stages.append(files)
        return stages

    def look_power(self, name, was, pending, found):
        mine = pending["session"] == name
        for label, files in was["points"].items():
            if label not in found["points"]:
                assert mine and pending["op"] == "drop" and \
                    pending["label"] == label, (name, label, pending)
            else:
                assert found["points"][label] == files, (name, label)
        for label in found["points"]:
            # Those that were not asked for have numbers.
            assert label in was["points"] or label.isdigit() or \
                (mine and pending["op"] == "name"), (name, label, pending)
        for n, says in was["execs"].items():
            place = self.at(name, "execs", n)
            assert read(os.path.join(place, "output")).decode() == says + "\n"
            assert read(os.path.join(place, "exit_code")) == b"0\n"
            assert read(os.path.join(place, "status")) == b"exited\n"

    def look_files(self, name, was, found, pending, after):
        mine = pending["session"] == name
        try:
            files = tree_of(self.at(name, "workspace"))
        except OSError as e:
            assert e.errno == errno.ESTALE and self.mode != "power", e
            self.await_status(name, lambda status: status == b"lost\n")
            put(self.at(name, "status"), "running")
            files = tree_of(self.at(name, "workspace"))
            assert files in [*found["points"].values(), {}], (name, files)
        if self.mode != "power":
            return files
        touched = set()
        if mine and pending["op"] in ("exec", "write"):
            touched = set(pending["changes"])
            touched |= {path + ".new" for path in touched}
        rest = {path: value for path, value in files.items()
                if path not in touched}
        expected = {path: value for path, value in was["files"].items()
                    if path not in touched}
        others = after.sessions.get(name, was)["files"]
        assert rest in (expected, others), (name, rest, expected, pending)
        return files

    def use(self, there):
        """All goes on."""
        for name in there.sessions:
            entry = {"op": "exec", "session": name, "says": "on",
                     "changes": {"f0": self.value()}}
            answer = self.command(entry)
            there.sessions[name]["files"] = tree_of(self.at(name, "workspace"))
            assert there.sessions[name]["files"]["f0"] == \
                entry["changes"]["f0"]
            there.done(dict(entry, changes={}), answer)
            for label in os.listdir(self.at(name, "checkpoints")):
                tree_of(self.at(name, "checkpoints", label))
        for name, label in self.lost:
            assert b"checkpoint '%s' is lost" % label.encode() in \
                read(self.at(name, "error")), (name, label)

    def live(self, last):
        model, pending = self.reborn()
        self.boot()
        there = self.look(model, pending)
        if last:
            self.use(there)
            for name in list(there.sessions):
                put(self.at(name, "status"), "absent")
            self.stop()
            return
        self.note(model=there.sessions)
        os.write(1, b"up\n")
        self.work(there)


def main():
    machine = Machine(*sys.argv[1:7], int(sys.argv[7]))
    try:
        machine.live(sys.argv[8:] == ["last"])
    except BaseException:
        with open(os.path.join(machine.where, "log"), "a") as f:
            traceback.print_exc(file=f)
        raise


main()
