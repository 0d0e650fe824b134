"""What the tests of `sessionfs serve` share."""
import fcntl
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from sandbox_v1 import Client, Failure

PROGRAM = os.path.abspath(sys.argv[1])
PROVIDER = sys.argv[2]
LOCAL = unittest.skipUnless(PROVIDER == "local", "needs a real sandbox")
WAIT_S = 30


def until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not come to that")
        time.sleep(0.02)


def signal_to(client, session, name, pid):
    """As kill(1), which is not on every machine."""
    argv = ["sh", "-c", 'kill -s "$1" "$2"', "sh", name, pid]
    return client.exec(session, argv)[0]


class Case(unittest.TestCase):
    own_daemon = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="serve.")
        self.state = os.path.join(self.dir, "state")
        self.host = os.path.join(self.dir, "host")
        self.options = f"state={self.state},provider={PROVIDER},log=syslog"
        self.clients = []
        os.makedirs(os.path.join(self.host, "sub"))
        with open(os.path.join(self.host, "file"), "w", encoding="ascii") as f:
            f.write("hello\n")
        os.chmod(os.path.join(self.host, "file"), 0o750)
        os.symlink("sub", os.path.join(self.host, "link"))

    def tearDown(self):
        for client in self.clients:
            if client.process.poll() is None:
                client.process.kill()
                client.process.wait()
            client.process.stdin.close()
            client.process.stdout.close()
        self.end_daemon(signal.SIGTERM)
        self.end_own_daemon()
        # The kernel keeps its part of an overlay from everybody.
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], check=True)
        shutil.rmtree(self.dir)

    def need_fuse(self):
        if not os.path.exists("/dev/fuse"):
            if os.environ.get("CI") == "true":
                self.fail("no /dev/fuse")
            self.skipTest("no /dev/fuse")

    def daemon(self):
        """Its pid; 0: there is none."""
        words = []
        while not words:
            try:
                with open(self.state + "/lock", "r+", encoding="ascii") as f:
                    fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return 0
            except BlockingIOError:
                with open(self.state + "/lock", encoding="ascii") as f:
                    words = f.read().split()
            except FileNotFoundError:
                return 0
        return int(words[0])

    def end_daemon(self, number):
        pid = self.daemon()
        if pid:
            os.kill(pid, number)
            until(lambda: self.daemon() == 0)

    def start_own_daemon(self):
        """One whose end is seen: of all that it has, nothing may be left."""
        ready, ours = os.pipe()
        argv = [PROGRAM, "serve", "-f", "--ready-fd", str(ours), "-o"]
        self.own_daemon = subprocess.Popen(
            argv + [self.options.replace("log=syslog", "log=stderr")],
            pass_fds=[ours],
            stderr=subprocess.PIPE,
        )
        os.close(ours)
        self.assertEqual(len(os.read(ready, 1)), 1)
        os.close(ready)

    def end_own_daemon(self):
        if self.own_daemon:
            words = self.own_daemon.communicate(timeout=WAIT_S)[1]
            self.assertEqual(self.own_daemon.returncode, 0, words)
            self.assertNotIn(b"ERROR", words)

    def fails(self, code, fn, *args, **more):
        with self.assertRaises(Failure) as caught:
            fn(*args, **more)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception.message

    def client(self, **more):
        argv = [PROGRAM, "serve", "-o", self.options]
        client = Client(argv, **more)
        self.clients.append(client)
        return client

    def log_sizes(self):
        return [
            os.path.getsize(name)
            for name in glob.glob(self.state + "/sessions/*/execs/*.log")
        ]


class Watched(Case):
    """Over a daemon in the foreground."""

    def setUp(self):
        super().setUp()
        self.profiles = self.dir + "/profiles"
        os.mkdir(self.profiles)
        with open(self.profiles + "/x.v3.json", "w", encoding="ascii") as f:
            json.dump({"provider": PROVIDER, "exec_timeout_ms": 300}, f)
        with open(self.profiles + "/idle.json", "w", encoding="ascii") as f:
            json.dump({"provider": PROVIDER, "idle_pause_after_seconds": 1}, f)
        self.options += ",profiles=" + self.profiles
        self.start_own_daemon()
