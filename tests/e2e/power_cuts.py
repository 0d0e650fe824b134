"""Cuts the power while a session is worked in, and looks at what is there then.

usage: power_cuts.py PROGRAM [CUTS [SEED]]

The state lies on a disk of its own, in a file. A cut takes from it all that was
not written by then: the kernel shuts the file system down, every process of
the machine, which is a pid namespace, is killed, and the file system is mounted
anew. After each cut:

- with -o durable=power all that was reported as done before is there: sessions
  and their ids, commands with their output, checkpoints with what is in them,
  restores, forks, what was dropped or removed, and what was written through the
  mount and followed by fsync;
- without, what is shown as a checkpoint is one, and all can be used.

The journal, which no cut reaches, has an entry for each thing before it is
asked for, and one when it was told that it succeeded.
"""
import contextlib
import errno
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32), of ext4 and xfs alike
NO_FLUSH = 2
WAIT_S = 60
LAST_PID = 100

# How a file system is made, and what keeps it from writing by itself.
DISKS = {"ext4": (["mkfs.ext4", "-q", "-F"], "128M", "commit=300"),
         "xfs": (["mkfs.xfs", "-q", "-f"], "320M", "defaults")}


def run(*words):
    subprocess.run(words, check=True)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def remove_group(path):
    """Its processes are dead, and may not be gone yet."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError as e:
            if e.errno != errno.EBUSY or time.monotonic() > end:
                raise
            time.sleep(0.005)


def remove_groups():
    """Of a machine that is no more: control groups are named by numbers of
    processes, and no machine but ours has such small ones."""
    for place, names, _ in os.walk("/sys/fs/cgroup", topdown=False):
        for name in names:
            path = os.path.join(place, name)
            number = path.partition("/sessionfs-keeper.")[2].split(".")[0]
            if number and int(number) < LAST_PID:
                remove_group(path)


class Disk:
    def __init__(self, where, kind):
        make, size, _ = DISKS[kind]
        self.image = os.path.join(where, "image")
        self.kind = kind
        run("truncate", "-s", size, self.image)
        run(*make, self.image)
        out = subprocess.run(["losetup", "--find", "--show", self.image],
                             stdout=subprocess.PIPE, text=True)
        self.device = out.stdout.strip() if out.returncode == 0 else None

    def released(self):
        """Once nobody has it mounted any more."""
        place = "/sys/fs/%s/%s" % (self.kind, os.path.basename(self.device))
        end = time.monotonic() + WAIT_S
        while os.path.exists(place):
            assert time.monotonic() < end, "the disk stays mounted"
            time.sleep(0.005)

    def remove(self):
        if self.device:
            run("losetup", "-d", self.device)
        os.unlink(self.image)


def start(program, where, disk, mode, seed, last):
    machine = os.path.join(os.path.dirname(__file__), "power_machine.py")
    return subprocess.Popen(
        ["unshare", "-mpf", "--mount-proc", "--kill-child", sys.executable,
         "-B", machine, program, where, disk.device, disk.kind,
         DISKS[disk.kind][2], mode, str(seed), *["last"] * last],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def first_of(process):
    path = "/proc/%d/task/%d/children" % (process.pid, process.pid)
    return int(read(path).split()[0])


def done(where):
    """How many things were."""
    with contextlib.suppress(FileNotFoundError):
        return read(os.path.join(where, "journal")).count(b'{"done"')
    return 0


def await_done(where, count):
    end = time.monotonic() + WAIT_S
    while done(where) < count and time.monotonic() < end:
        time.sleep(0.005)


def cut(process, where, disk, after, names):
    """Takes its power away in the thing after so many; the disk may have had
    time for the database and for names, and not for what else is in files."""
    place = "/proc/%d/root%s/disk" % (first_of(process), where)
    fd = os.open(place, os.O_RDONLY)
    await_done(where, done(where) + int(after))
    time.sleep(after % 1 / 20)
    if names:
        for name in "state/state.db-wal", "new":
            with open(os.path.join(place, name), "a") as f:
                os.fsync(f.fileno())
    failed = process.poll()
    fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", NO_FLUSH))
    os.close(fd)
    process.kill()
    process.wait()
    assert failed is None, failed
    disk.released()
    remove_groups()


def cut_often(program, where, kind, mode, cuts, seed):
    disk = Disk(where, kind)
    if not disk.device:
        os.unlink(disk.image)
        print("power_cuts: no loop device")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    times = random.Random(seed)
    try:
        for turn in range(cuts + 1):
            process = start(program, where, disk, mode, seed + turn,
                            turn == cuts)
            if turn < cuts:
                said = process.stdout.readline()
                assert said == b"up\n", "it does not start"
                cut(process, where, disk, times.uniform(0, 12),
                    mode == "process" and times.random() < 0.7)
            else:
                assert process.wait(WAIT_S) == 0
                disk.released()
    except BaseException:
        process.kill()
        process.wait()
        journal = read(os.path.join(where, "journal")).splitlines()
        print("\n".join(line[:500].decode() for line in journal[-12:]))
        sys.stderr.write(read(os.path.join(where, "log")).decode()[-4000:])
        print("power_cuts: %s, %s, seed %d, cut %d" % (kind, mode, seed, turn))
        raise
    finally:
        disk.released()
        disk.remove()
        remove_groups()
    print("power_cuts: %s, %s: %d cuts, %d things done" %
          (kind, mode, cuts, done(where)))


def main():
    program = os.path.abspath(sys.argv[1])
    cuts = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else \
        random.randrange(1 << 30)
    needed = "/dev/fuse", "/dev/loop-control"
    if os.geteuid() or not all(map(os.path.exists, needed)):
        print("power_cuts: needs root, /dev/fuse and loop devices")
        sys.exit(1 if os.environ.get("CI") == "true" else 77)
    if "POWER_CUTS" not in os.environ:
        os.environ["POWER_CUTS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, __file__,
                              program, str(cuts), str(seed)])
    # One at a time: control groups of two would have the same names.
    alone = os.open("/dev/loop-control", os.O_RDONLY)
    fcntl.flock(alone, fcntl.LOCK_EX)
    # Copies of other tests' mounts, whose daemons could not end; some may end
    # meanwhile.
    subprocess.run(["umount", "--all", "--lazy", "--types", "fuse.sessionfs"],
                   stderr=subprocess.DEVNULL)
    for kind in DISKS:
        if not shutil.which("mkfs." + kind):
            continue
        for mode, count in ("power", cuts), ("process", (cuts + 2) // 3):
            where = tempfile.mkdtemp(prefix="power_cuts.", dir="/tmp")
            run("mount", "-t", "tmpfs", "tmpfs", where)
            for name in "disk", "mnt", "proc":
                os.mkdir(os.path.join(where, name))
            try:
                cut_often(program, where, kind, mode, count, seed)
            finally:
                run("umount", "--lazy", where)
                os.rmdir(where)


main()
