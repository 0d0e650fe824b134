#!/usr/bin/env python3
"""`sessionfs serve` by its protocol: each line is checked against the schema.
usage: serve.py PROGRAM PROVIDER [TEST...]"""
import base64
import fcntl
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
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


class Sessions(Watched):
    def test_a_session_from_open_to_close(self):
        c = self.client()
        self.assertEqual(c.call("capabilities"), {"exec": True})
        s = c.open(self.host)
        self.assertTrue(s["capabilities"]["exec"])
        self.assertEqual(s["cwd"], "/workspace")
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        c.write_file(s, "new", b"\0\xff")
        self.assertEqual(c.read_file(s, "/workspace/new"), b"\0\xff")
        self.assertEqual(c.call("close", session=s), {})
        self.assertEqual(c.call("close", session=s), {})
        self.fails("provider_failure", c.read_file, s, "file")
        self.assertEqual(c.call("shutdown"), {})
        self.assertEqual(c.wait(), 0)
        self.assertEqual(os.listdir(self.state + "/sessions"), [])

    def test_the_host_directory_is_never_written_to(self):
        c = self.client()
        s = c.open(self.host)
        c.write_file(s, "file", b"other")
        c.write_file(s, "sub/more", b"")
        c.call("remove", session=s, path="link")
        with open(self.host + "/file", encoding="ascii") as f:
            self.assertEqual(f.read(), "hello\n")
        self.assertEqual(sorted(os.listdir(self.host)), ["file", "link", "sub"])
        self.assertEqual(os.listdir(self.host + "/sub"), [])

    def test_a_profile_has_to_be_there(self):
        c = self.client()
        self.fails("bad_profile", c.open, self.host, profile="nope")
        gone = self.host + "/nope"
        message = self.fails("provider_failure", c.open, gone)
        self.assertIn("No such file", message)
        self.fails("bad_request", c.open, "relative")
        self.assertEqual(os.listdir(self.state + "/sessions"), [])

    def test_profiles_are_by_name(self):
        c = self.client()
        s = c.open(self.host, profile="x.v3")
        hang = ["sleep", "60"] if PROVIDER == "local" else ["hang"]
        self.assertEqual(c.exec(s, hang)[0], 124)

    @LOCAL
    def test_a_paused_sandbox_is_woken(self):
        c = self.client()
        s = c.open(self.host, profile="idle")
        pid = c.call("spawn", session=s, argv=["sleep", "1000"])["process_id"]
        other = c.open(self.host, profile="idle")
        c.exec(other, ["sh", "-c", "sleep 1000 & echo $! >pid"])
        time.sleep(3)
        self.assertEqual(c.exec(s, ["kill", "-0", pid])[0], 0)
        code = "kill -0 $(cat pid)"
        self.assertEqual(c.exec(other, ["sh", "-c", code])[0], 0)
        self.assertEqual(c.read_file(other, "file"), b"hello\n")

    def test_groups_are_cleaned_up(self):
        c = self.client()
        names = ["g1", "g1", "g1", "g2", "../../evil/grp", "g1/", "", "é" * 99]
        sessions = [c.open(self.host, group=name) for name in names]
        self.assertEqual(len({s["id"] for s in sessions}), len(names))
        hang = ["sleep", "1000"] if PROVIDER == "local" else ["hang"]
        c.call("spawn", session=sessions[1], argv=hang)
        self.assertEqual(c.cleanup("g"), 0)
        self.assertEqual(c.cleanup("g1"), 3)
        self.assertEqual(c.cleanup("g1"), 0)
        self.fails("provider_failure", c.read_file, sessions[0], "file")
        self.assertEqual(c.read_file(sessions[3], "file"), b"hello\n")
        for name in names[3:]:
            self.assertEqual(c.cleanup(name), 1)
        self.assertEqual(os.listdir(self.state + "/sessions"), [])

    @LOCAL
    def test_close_ends_all_that_runs(self):
        c = self.client()
        s = c.open(self.host)
        other = self.client()
        id_ = other.begin("exec", {"session": s, "argv": ["sleep", "100"]})
        c.call("spawn", session=s, argv=["sh", "-c", "trap '' TERM; sleep 100"])
        self.assertEqual(other.read()["event"]["type"], "started")
        begin = time.monotonic()
        c.call("close", session=s)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn(other.finish("exec", id_)["exit_code"], (-15, -9))

    def test_a_session_of_another_state_is_not_taken_for_ours(self):
        c = self.client()
        s = c.open(self.host)
        state = json.loads(s["provider_state_json"])
        state["created_us"] += 1
        other = dict(s, provider_state_json=json.dumps(state))
        self.fails("provider_failure", c.read_file, other, "file")
        self.assertEqual(c.call("close", session=other), {})
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        for bad in ("x", "[]", "7"):
            other = dict(s, provider_state_json=bad)
            self.fails("bad_request", c.read_file, other, "file")
        # Without a state the id is what there is.
        self.assertEqual(c.read_file({"id": s["id"]}, "file"), b"hello\n")

    @LOCAL
    def test_the_working_directory_is_where_paths_begin(self):
        c = self.client()
        s = c.open(self.host, cwd="sub")
        self.assertEqual(s["cwd"], "/workspace/sub")
        c.write_file(s, "here", b"x")
        self.assertEqual(c.read_file(s, "/workspace/sub/here"), b"x")
        self.assertEqual(c.exec(s, ["pwd"])[1], b"/workspace/sub\n")
        self.assertEqual(c.exec(s, ["pwd"], cwd="..")[1], b"/workspace\n")
        self.assertEqual(c.exec(s, ["pwd"], cwd="/etc")[1], b"/etc\n")
        s = c.open(self.host, cwd=None)
        self.assertEqual(c.exec(s, ["pwd"], cwd=None)[1], b"/workspace\n")


class Files(Watched):
    def test_files_below_the_workspace(self):
        c = self.client()
        s = c.open(self.host)
        c.write_file(s, "a/b/c", b"1")
        self.assertEqual(c.read_file(s, "./a//b/./c"), b"1")
        c.write_file(s, "a/b/c", b"")
        self.assertEqual(c.read_file(s, "a/b/c"), b"")
        c.call("create_dir_all", session=s, path="a/d/e")
        c.call("create_dir_all", session=s, path="a/d/e/")
        c.call("create_dir_all", session=s, path="/workspace")
        for path, words in (
            ("nope", "[Errno 2]"),
            ("nope/x", "[Errno 2]"),
            ("a/b/c/d", "[Errno 20]"),
            ("a", "[Errno 21]"),
            ("", "[Errno 2]"),
            ("x" * 300, "[Errno 36]"),
        ):
            message = self.fails("provider_failure", c.read_file, s, path)
            self.assertIn(words, message)
        self.assertIn(
            "No such file or directory",
            self.fails("provider_failure", c.read_file, s, "nope"),
        )
        self.fails("provider_failure", c.write_file, s, "a", b"")
        self.fails("provider_failure", c.write_file, s, "a/b/c/d", b"")
        self.fails(
            "provider_failure", c.call, "create_dir_all", session=s, path="a/b/c"
        )
        self.fails("provider_failure", c.call, "remove", session=s, path="")
        self.fails(
            "provider_failure", c.call, "remove", session=s, path="/workspace/"
        )
        for path in ("a/b/c", "a/b/c", "a/d/e", "nope/x", "a/b/c/d"):
            c.call("remove", session=s, path=path)
        self.fails("provider_failure", c.read_file, s, "a/b/c")

    def test_a_large_file_comes_back_equal(self):
        c = self.client()
        s = c.open(self.host)
        data = os.urandom(8 << 20)
        c.write_file(s, "large", data)
        self.assertEqual(c.read_file(s, "large"), data)

    def test_names_are_bytes(self):
        c = self.client()
        s = c.open(self.host)
        name = "a\udcff\n\u00e9\U0001f600 b"
        c.write_file(s, name, b"x")
        self.assertEqual(c.read_file(s, name), b"x")
        # A peer may also send the bytes themselves.
        raw = json.dumps({"session": s, "path": "PATH"}).encode()
        raw = raw.replace(b"PATH", b"a\xff\\n\xc3\xa9\xf0\x9f\x98\x80 b")
        c.send_line(b'{"id":"x","method":"read_file","params":' + raw + b"}")
        self.assertEqual(c.finish("read_file", "x")["content_base64"], "eA==")
        message = self.fails("provider_failure", c.read_file, s, "\udc80")
        self.assertIn("\udc80", message)
        self.fails("bad_request", c.read_file, s, "a\0b")

    @LOCAL
    def test_what_a_file_is_stays_when_it_is_written(self):
        c = self.client()
        s = c.open(self.host)
        c.write_file(s, "file", b"new")
        stats = ["stat", "-c", "%a %U", "file"]
        self.assertEqual(c.exec(s, stats)[1], b"750 user\n")
        c.write_file(s, "made", b"new")
        stats[-1] = "made"
        self.assertEqual(c.exec(s, stats)[1], b"644 user\n")
        self.assertEqual(c.exec(s, ["ls", "-A"])[1], b"file\nlink\nmade\nsub\n")

    @LOCAL
    def test_links_lead_as_they_do_in_the_sandbox(self):
        c = self.client()
        s = c.open(self.host)
        c.write_file(s, "link/x", b"1")
        self.assertEqual(c.read_file(s, "sub/x"), b"1")
        self.assertEqual(c.read_file(s, "link/../sub/x"), b"1")
        c.exec(s, ["ln", "-s", "/etc/hostname", "out"])
        self.assertEqual(c.read_file(s, "out"), b"sandbox\n")
        c.exec(s, ["ln", "-s", "sub/x", "to"])
        c.write_file(s, "to", b"2")
        self.assertEqual(c.read_file(s, "sub/x"), b"2")
        c.call("create_dir_all", session=s, path="link/d/e")
        for path in ("link", "link/"):
            c.call("remove", session=s, path=path)
        self.assertEqual(c.read_file(s, "sub/x"), b"2")
        c.call("remove", session=s, path="sub")
        self.assertEqual(c.exec(s, ["ls"])[1], b"file\nout\nto\n")

    @LOCAL
    def test_files_outside_of_the_workspace(self):
        c = self.client()
        s = c.open(self.host)
        self.assertEqual(c.read_file(s, "/etc/hostname"), b"sandbox\n")
        data = os.urandom(5 << 20)
        c.write_file(s, "/tmp/a b/c'd", data)
        self.assertEqual(c.read_file(s, "/tmp/a b/c'd"), data)
        c.write_file(s, "/tmp/a b/c'd", b"")
        self.assertEqual(c.read_file(s, "/tmp/a b/c'd"), b"")
        c.call("create_dir_all", session=s, path="/tmp/x/y")
        c.call("remove", session=s, path="/tmp/x")
        c.call("remove", session=s, path="/tmp/x")
        for path, words in (
            ("/tmp/x", "[Errno 2]"),
            ("/etc", "[Errno 22]"),
            ("/dev/zero", "[Errno 22]"),
        ):
            message = self.fails("provider_failure", c.read_file, s, path)
            self.assertIn(words, message)
        self.fails("provider_failure", c.write_file, s, "/usr/x", b"")
        self.fails("provider_failure", c.write_file, s, "/dev/full", b"x")

    @LOCAL
    def test_a_fifo_is_refused(self):
        c = self.client()
        s = c.open(self.host)
        c.exec(s, ["mkfifo", "fifo", "/tmp/fifo"])
        for path in ("fifo", "/tmp/fifo"):
            self.fails("provider_failure", c.read_file, s, path)
            self.fails("provider_failure", c.write_file, s, path, b"x")
            c.call("remove", session=s, path=path)

    @LOCAL
    def test_a_temporary_directory_is_the_sandbox_s(self):
        c = self.client()
        s = c.open(self.host)
        made = [
            c.call("create_temp_dir", session=s, prefix=prefix)["path"]
            for prefix in ("a", "a", "../x y", "", "-x")
        ]
        self.assertEqual(len(set(made)), 5)
        for path in made:
            self.assertRegex(path, "^/tmp/[A-Za-z0-9._-]*$")
            c.write_file(s, path + "/x", b"1")
        self.assertEqual(c.exec(s, ["cat", made[2] + "/x"])[1], b"1")
        self.assertEqual(glob.glob(made[0]), [])


class Commands(Watched):
    def test_a_command_tells_its_end(self):
        c = self.client()
        s = c.open(self.host)
        if PROVIDER == "mem":
            self.assertEqual(c.exec(s, ["echo", "a"]), (0, b"a\n", b""))
            self.assertEqual(c.exec(s, ["err", "a"]), (0, b"", b"a\n"))
            self.assertEqual(c.exec(s, ["exit", "3"]), (3, b"", b""))
            self.assertEqual(c.exec(s, ["kill", "9"]), (-9, b"", b""))
            return
        sh = ["sh", "-c"]
        self.assertEqual(c.exec(s, sh + ["echo a; exit 3"]), (3, b"a\n", b""))
        self.assertEqual(c.exec(s, sh + ["echo a >&2"]), (0, b"", b"a\n"))
        self.assertEqual(c.exec(s, sh + ["kill -9 $$"]), (-9, b"", b""))
        self.assertEqual(c.exec(s, sh + ["kill -15 $$"]), (-15, b"", b""))
        self.assertEqual(c.exec(s, sh + ["exit 137"])[0], 137)

    @LOCAL
    def test_argv_is_exact_and_no_shell_sees_it(self):
        c = self.client()
        s = c.open(self.host)
        words = ["$HOME", "a b", "", "'\"\\", "*", "\n", "\udcff", "é", "-n"]
        want = b"".join(os.fsencode(word) + b"\0" for word in words)
        code = "printf '%s\\0' \"$@\""
        self.assertEqual(c.exec(s, ["sh", "-c", code, "sh"] + words)[1], want)

    @LOCAL
    def test_input_and_variables(self):
        c = self.client()
        s = c.open(self.host)
        data = os.urandom(1 << 20)
        self.assertEqual(c.exec(s, ["cat"], data)[1], data)
        self.assertEqual(c.exec(s, ["cat"])[1], b"")
        self.assertEqual(c.exec(s, ["cat"], b"")[1], b"")
        env = {"A": "1 2", "B": "", "C": "\udcff"}
        code = "printf '%s,%s,%s,' \"$A\" \"$B\" \"$C\"; test -n \"$PATH\""
        got = c.exec(s, ["sh", "-c", code], env=env)
        self.assertEqual(got, (0, b"1 2,,\xff,", b""))

    def test_what_cannot_start_is_an_error(self):
        c = self.client()
        s = c.open(self.host)
        for method in ("exec", "spawn"):
            self.fails("bad_request", c.call, method, session=s, argv=[])
            self.fails("bad_request", c.call, method, session=s, argv=[""])
            if PROVIDER == "local":
                message = self.fails(
                    "provider_failure", c.call, method, session=s, argv=["nope"]
                )
                self.assertIn("[Errno 2]", message)
                self.assertEqual(c.events, [])

    @LOCAL
    def test_output_comes_as_it_is_written(self):
        c = self.client()
        s = c.open(self.host)
        code = "echo 1; while [ ! -e go ]; do sleep 0.02; done; echo 2"
        id_ = c.begin("exec", {"session": s, "argv": ["sh", "-c", code]})
        self.assertEqual(c.read()["event"]["type"], "started")
        self.assertEqual(c.read()["event"]["data_base64"], "MQo=")
        other = self.client()
        other.write_file(s, "go", b"")
        self.assertEqual(c.finish("exec", id_)["stdout_base64"], "MQoyCg==")

    def test_much_output_is_whole(self):
        c = self.client()
        s = c.open(self.host)
        size = 20_000_001
        if PROVIDER == "mem":
            code, out, _ = c.exec(s, ["spam", str(size)])
            self.assertEqual((code, out), (0, b"x" * size))
            return
        code = f"seq 1 9999999 | head -c {size}; seq 1 99999 >&2"
        code, out, err = c.exec(s, ["sh", "-c", code])
        self.assertEqual(len(out), size)
        self.assertEqual(out[:6] + out[-9:], b"1\n2\n3\n" + out[-9:])
        self.assertEqual(err, b"".join(b"%d\n" % n for n in range(1, 100000)))

    @LOCAL
    def test_a_spawned_process_lives_until_close(self):
        c = self.client()
        s = c.open(self.host)
        code = "echo lost; echo >&2 lost; cat >got; sleep 1000"
        got = c.call(
            "spawn", session=s, argv=["sh", "-c", code], stdin_base64="aGk="
        )
        self.assertEqual([e["type"] for e in c.events], ["started"])
        self.assertEqual(c.events[0]["process_id"], got["process_id"])
        self.assertEqual(c.end(), 0)
        c = self.client()
        until(lambda: c.exec(s, ["cat", "got"])[1] == b"hi")
        self.assertEqual(c.exec(s, ["kill", "-0", got["process_id"]])[0], 0)
        # What it wrote is nowhere.
        self.assertEqual(max(self.log_sizes()), 2)
        self.assertEqual(c.exec(s, ["kill", got["process_id"]])[0], 0)
        kill = ["kill", "-0", got["process_id"]]
        until(lambda: c.exec(s, kill)[0] != 0)
        c.call("close", session=s)


class Processes(Case):
    @LOCAL
    def test_several_processes_work_on_one_session_at_once(self):
        a, b = self.client(), self.client()
        s = a.open(self.host)
        wait = "while [ ! -e %s ]; do sleep 0.02; done; echo %s > %s"
        first = wait % ("2", "x", "1")
        second = wait % ("3", "x", "2")
        ids = [
            client.begin("exec", {"session": s, "argv": ["sh", "-c", code]})
            for client, code in ((a, first), (b, second))
        ]
        c = self.client()
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        c.exec(s, ["touch", "3"])
        for client, id_ in zip((a, b), ids):
            self.assertEqual(client.finish("exec", id_)["exit_code"], 0)
        self.assertEqual(c.read_file(s, "1"), b"x\n")

    def test_a_session_outlives_the_process_that_opened_it(self):
        a = self.client()
        s = a.open(self.host)
        a.write_file(s, "x", b"1")
        self.assertEqual(a.end(), 0)
        b = self.client()
        self.assertEqual(b.read_file(s, "x"), b"1")
        b.process.kill()
        c = self.client()
        self.assertEqual(c.read_file(s, "x"), b"1")
        c.call("close", session=s)

    def test_many_first_processes_find_one_daemon(self):
        clients = [self.client(stderr=subprocess.PIPE) for _ in range(8)]
        for client in clients:
            client.send_line('{"id":"x","method":"capabilities","params":{}}')
        for client in clients:
            self.assertEqual(client.finish("capabilities", "x"), {"exec": True})
            client.end()
            # Nothing of the daemon keeps a client's pipes open.
            client.process.stderr.read()
            client.process.stderr.close()

    @LOCAL
    def test_a_killed_process_takes_its_command_along(self):
        a, b = self.client(), self.client()
        s = a.open(self.host)
        code = "echo $$ >pid; exec sleep 1000"
        a.begin("exec", {"session": s, "argv": ["sh", "-c", code]})
        self.assertEqual(a.read()["event"]["type"], "started")
        pid = ""
        end = time.monotonic() + WAIT_S
        while not pid and time.monotonic() < end:
            try:
                pid = b.read_file(s, "pid").decode().strip()
            except Failure:
                pass
        self.assertEqual(b.exec(s, ["kill", "-0", pid])[0], 0)
        a.process.kill()
        until(lambda: b.exec(s, ["kill", "-0", pid])[0] != 0)
        self.assertEqual(b.read_file(s, "file"), b"hello\n")

    @LOCAL
    def test_a_killed_daemon_loses_no_session(self):
        a = self.client(stderr=subprocess.PIPE)
        s = a.open(self.host, group="killed")
        a.write_file(s, "x", b"1")
        argv = ["sh", "-c", "yes & sleep 1000"]
        pid = a.call("spawn", session=s, argv=argv)["process_id"]
        self.end_daemon(signal.SIGKILL)
        self.assertEqual(a.read_line(), b"")
        self.assertEqual(a.wait(), 1)
        self.assertIn(b"the daemon ended", a.process.stderr.read())
        a.process.stderr.close()
        b = self.client()
        self.assertEqual(b.read_file(s, "x"), b"1")
        self.assertEqual(b.exec(s, ["cat", "x"]), (0, b"1", b""))
        self.assertEqual(b.exec(s, ["kill", "-0", pid])[0], 0)
        # What it writes is still nowhere.
        self.assertLess(max(self.log_sizes()), 100)
        self.assertEqual(b.cleanup("killed"), 1)

    @LOCAL
    def test_an_ended_daemon_loses_no_session(self):
        a = self.client(stderr=subprocess.DEVNULL)
        s = a.open(self.host)
        a.write_file(s, "x", b"1")
        self.end_daemon(signal.SIGTERM)
        self.assertEqual(a.wait(), 1)
        b = self.client()
        self.assertEqual(b.exec(s, ["cat", "x"]), (0, b"1", b""))

    @LOCAL
    def test_the_daemon_ends_when_nothing_is_left(self):
        a = self.client()
        s = a.open(self.host)
        self.assertEqual(a.end(), 0)
        b = self.client()
        self.assertNotEqual(self.daemon(), 0)
        b.call("close", session=s)
        self.assertEqual(b.end(), 0)
        until(lambda: self.daemon() == 0)
        c = self.client()
        self.assertEqual(c.call("capabilities"), {"exec": True})

    def test_the_end_of_input_is_the_end(self):
        lines = b"".join(
            b'{"id":"%d","method":"capabilities","params":{}}\n' % n
            for n in range(100)
        )
        done = subprocess.run(
            [PROGRAM, "serve", "-o", self.options],
            input=lines + b'{"id":"last","method":"nope","params":{}}',
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(
            [a["id"] for a in answers], [str(n) for n in range(100)] + ["last"]
        )
        self.assertNotIn(b"\0", done.stdout)

    @LOCAL
    def test_a_client_that_does_not_read_ends_it(self):
        a, b = self.client(), self.client()
        s = a.open(self.host)
        a.begin("exec", {"session": s, "argv": ["sleep", "1000"]})
        self.assertEqual(a.read()["event"]["type"], "started")
        a.process.stdout.close()
        self.assertEqual(a.process.wait(WAIT_S), 0)
        until(lambda: b.exec(s, ["pgrep", "sleep"])[0] == 1)

    def test_a_signal_ends_it(self):
        a = self.client()
        self.assertEqual(a.call("capabilities"), {"exec": True})
        a.process.terminate()
        self.assertEqual(a.wait(), -signal.SIGTERM)

    def test_a_client_that_is_slow_to_read_gets_all(self):
        a = self.client()
        a.open(self.host)
        lines = b'{"id":"%d","method":"capabilities","params":{}}\n'
        data = b"".join(lines % n for n in range(20000))
        writer = threading.Thread(
            target=lambda: (a.process.stdin.write(data), a.process.stdin.close())
        )
        writer.start()
        time.sleep(0.5)
        for n in range(20000):
            self.assertEqual(a.read()["id"], str(n))
        writer.join()
        self.assertIsNone(a.read())


class Lines(Watched):
    """Lenient in what is taken."""

    def answer(self, client, line):
        client.send_line(line)
        return client.read()

    def test_lines_that_are_no_requests(self):
        c = self.client()
        for line in (
            "x",
            '{"id":"unknown","method":"open\\u0000"}',
            "{",
            "[]",
            "null",
            "7",
            '"x"',
            "{}",
            '{"id":"x"',
            '{"a":1,"a":2}',
            "\0",
            b"\xff\xfe",
            '{"id":[],"method":7}',
            '{"x":' + "[" * 5000 + "]" * 5000 + "}",
        ):
            message = self.answer(c, line)
            self.assertEqual(message["id"], "unknown", line)
            self.assertEqual(message["error"]["code"], "invalid_request", line)
            self.assertFalse(message["error"]["retryable"])
        self.assertEqual(c.call("capabilities"), {"exec": True})
        self.assertEqual(c.end(), 0)

    def test_what_is_let_pass(self):
        c = self.client()
        self.assertEqual(c.call("capabilities"), {"exec": True})
        for line, id_ in (
            ('\n\n  \n\r\n{"id":"a","method":"capabilities","params":{}}\r', "a"),
            ('{"id":7,"method":"capabilities","params":{}}', "7"),
            ('{"id":"","method":"capabilities","params":{}}', ""),
            ('{"id":"b","method":"capabilities"}', "b"),
            ('{"id":"c","method":"capabilities","params":null,"x":[]}', "c"),
            ('{"id":"\\ud83d\\ude00","method":"capabilities"}', "\U0001f600"),
            ('{"id":"\\udcff","method":"capabilities"}', "\udcff"),
            ('{"id":"a\\u0000b","method":"capabilities"}', "a\0b"),
            (b'{"id":"\xff","method":"capabilities"}', "\udcff"),
        ):
            message = self.answer(c, line)
            self.assertEqual(message, {"id": id_, "result": {"exec": True}})

    def test_requests_that_cannot_be(self):
        c = self.client()
        s = c.open(self.host)
        self.fails("unknown_method", c.call, "cleanup_sandbox_group")
        self.fails("unknown_method", c.call, "")
        for method, params in (
            ("open", {}),
            ("open", {"metadata": {}, "profile": [], "workspace_sync": None}),
            ("close", {"session": "x"}),
            ("close", {}),
            ("read_file", {"session": s}),
            ("read_file", {"session": s, "path": 7}),
            ("write_file", {"session": s, "path": "x"}),
            ("write_file", {"session": s, "path": "x", "content_base64": "*"}),
            ("write_file", {"session": s, "path": "x", "content_base64": "QQ"}),
            ("exec", {"session": s}),
            ("exec", {"session": s, "argv": "ls"}),
            ("exec", {"session": s, "argv": ["ls", 7]}),
            ("exec", {"session": s, "argv": ["ls"], "env": {"A": 7}}),
            ("exec", {"session": s, "argv": ["ls"], "stdin_base64": "*"}),
            ("cleanup_group", {}),
            ("create_temp_dir", {"session": s}),
        ):
            request = {"id": "x", "method": method, "params": params}
            message = self.answer(c, json.dumps(request))
            self.assertEqual(message["id"], "x")
            self.assertEqual(message["error"]["code"], "bad_request", request)
        self.assertEqual(c.read_file(s, "file"), b"hello\n")

    def test_null_is_as_if_it_was_not_there(self):
        c = self.client()
        s = c.open(self.host)
        more = {"cwd": None, "env": None, "stdin_base64": None}
        argv = ["echo", "a"]
        request = {"session": s, "argv": argv, "more": 1, **more}
        line = json.dumps({"id": "x", "method": "exec", "params": request})
        c.send_line(line)
        self.assertEqual(c.finish("exec", "x")["stdout_base64"], "YQo=")
        bare = {"id": s["id"], "provider_session_id": None, "cwd": None}
        bare["provider_state_json"] = s["provider_state_json"]
        self.assertEqual(c.read_file(bare, "file"), b"hello\n")

    def test_a_line_that_is_too_long_is_skipped(self):
        c = self.client()
        c.send_line(b'{"id":"x","y":"' + b"z" * (100 << 20) + b'"}')
        message = c.read()
        self.assertEqual(message["error"]["code"], "invalid_request")
        self.assertEqual(c.call("capabilities"), {"exec": True})


class Mounted(Case):
    """The daemon that has mounted the state serves too."""

    def setUp(self):
        super().setUp()
        self.need_fuse()
        self.mnt = self.dir + "/mnt"
        os.mkdir(self.mnt)
        subprocess.run([PROGRAM, "-o", self.options, self.mnt], check=True)

    def tearDown(self):
        subprocess.run(["fusermount3", "-u", self.mnt], check=True)
        until(lambda: self.daemon() == 0)
        super().tearDown()

    def test_sessions_are_the_mount_s(self):
        c = self.client()
        s = c.open(self.host)
        at = f"{self.mnt}/sessions/{s['id']}"
        self.assertEqual(os.listdir(self.mnt + "/sessions"), [s["id"]])
        with open(at + "/workspace/x", "w", encoding="ascii") as f:
            f.write("1")
        self.assertEqual(c.read_file(s, "x"), b"1")
        c.write_file(s, "y", b"2")
        with open(at + "/workspace/y", encoding="ascii") as f:
            self.assertEqual(f.read(), "2")
        c.exec(s, ["echo", "a"])
        with open(at + "/execs/last/stdout", encoding="ascii") as f:
            self.assertEqual(f.read(), "a\n")
        os.rename(at, self.mnt + "/sessions/kept")
        self.assertEqual(c.cleanup("g"), 0)
        self.assertEqual(c.read_file(s, "x"), b"1")
        c.call("close", session=s)
        self.assertEqual(os.listdir(self.mnt + "/sessions"), [])

    def test_the_socket_is_ours_alone(self):
        mode = os.stat(self.state + "/serve.sock").st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)


@LOCAL
class Chain(Case):
    """Both ends against each other: a mount whose engine is the program."""

    def setUp(self):
        super().setUp()
        self.need_fuse()
        self.mnt = self.dir + "/mnt"
        profiles = self.dir + "/profiles"
        os.mkdir(self.mnt)
        os.mkdir(profiles)
        config = {
            "program": PROGRAM,
            "argv": ["serve", "-o", self.options],
            "workspace": self.host,
        }
        with open(profiles + "/default.json", "w", encoding="ascii") as f:
            json.dump({"provider": "jsonl", "provider_config": config}, f)
        outer = f"state={self.dir}/outer,profiles={profiles},provider=jsonl"
        subprocess.run([PROGRAM, "-o", outer, self.mnt], check=True)
        self.at = self.mnt + "/sessions/a"
        self.ws = self.at + "/workspace"
        os.mkdir(self.at)

    def tearDown(self):
        subprocess.run(["fusermount3", "-u", self.mnt], check=True)
        with open(self.dir + "/outer/lock", "r+", encoding="ascii") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
        super().tearDown()

    def write(self, name, text):
        with open(name, "w", encoding="ascii") as f:
            f.write(text)

    def read(self, name):
        with open(name, "rb") as f:
            return f.read()

    def run_command(self, text):
        self.write(self.at + "/exec", text)
        return self.read(self.at + "/exec")

    def test_a_session_in_a_session(self):
        self.assertEqual(self.run_command("cat file; hostname; pwd; exit 3"),
                         b"hello\nsandbox\n/workspace\n")
        self.assertEqual(self.read(self.at + "/execs/last/exit_code"), b"3\n")
        self.assertEqual(self.run_command("kill -9 $$"), b"")
        self.assertEqual(self.read(self.at + "/execs/last/exit_code"), b"137\n")
        self.assertEqual(len(os.listdir(self.state + "/sessions")), 1)
        self.write(self.ws + "/file", "other\n")
        os.makedirs(self.ws + "/d/e")
        os.symlink("../file", self.ws + "/d/link")
        os.rename(self.ws + "/d/e", self.ws + "/d/f")
        self.assertEqual(self.run_command("cat d/link; ls d"),
                         b"other\nf\nlink\n")
        self.assertEqual(sorted(os.listdir(self.ws)),
                         ["d", "file", "link", "sub"])
        data = os.urandom(3 << 20)
        with open(self.ws + "/large", "wb") as f:
            f.write(data)
        self.assertEqual(self.read(self.ws + "/large"), data)
        shutil.rmtree(self.ws + "/d")
        self.assertEqual(self.run_command("ls"), b"file\nlarge\nlink\nsub\n")
        self.assertEqual(self.read(self.host + "/file"), b"hello\n")
        self.write(self.at + "/status", "absent\n")
        self.assertEqual(os.listdir(self.state + "/sessions"), [])

    def test_the_end_of_the_inner_daemon_is_got_over(self):
        self.assertEqual(self.run_command("echo 1 >x; cat x"), b"1\n")
        self.end_daemon(signal.SIGKILL)

        def works():
            try:
                return self.run_command("cat x") == b"1\n"
            except OSError:
                return False

        until(works)


class Program(Case):
    def run_it(self, *args):
        return subprocess.run(
            [PROGRAM, "serve", *args],
            input=b"",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )

    def test_what_it_says_of_itself(self):
        self.assertIn(b"sandbox.v1", self.run_it("--help").stdout)
        self.assertEqual(self.run_it("--help").returncode, 0)
        for args in (("x",), ("-o", "nope"), ("-o", "ro")):
            done = self.run_it(*args)
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertNotEqual(done.stderr, b"")

    def test_a_start_that_fails_says_why(self):
        os.mkdir(self.state, 0o755)
        with open(self.state + "/x", "w", encoding="ascii"):
            pass
        done = self.run_it("-o", self.options)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertIn(b"holds other files", done.stderr)

    def test_its_name_as_a_provider(self):
        name = os.path.join(os.path.dirname(PROGRAM), "smol-sandbox-sessionfs")
        config = self.dir + "/conf"
        with open(config, "w", encoding="ascii") as f:
            f.write(f"state={self.state}\nprovider={PROVIDER}\n")
        os.chmod(config, 0o600)
        client = Client([name, "serve", "--config", config])
        self.clients.append(client)
        self.assertEqual(client.call("capabilities"), {"exec": True})

    @LOCAL
    def test_secrets_are_in_no_log_and_no_list(self):
        c = self.client()
        s = c.open(self.host)
        data = base64.b64encode(b"hush-hush").decode()
        c.exec(s, ["cat"], b"hush-hush")
        for name in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(name, "rb") as f:
                    self.assertNotIn(data.encode(), f.read())
            except (FileNotFoundError, ProcessLookupError):
                pass


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=2)
