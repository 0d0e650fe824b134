"""Clients of `sessionfs serve` that mean no good, and deaths at any moment:
what is left is nothing."""
import glob
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from sandbox_v1 import Failure
from serve_case import (
    LOCAL, PROGRAM, PROVIDER, WAIT_S, Case, Watched, signal_to, until
)

# What commands are told to sleep: so it is known whose they are.
LONG = f"76543.{os.getpid()}"
ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root")
SESSIONS = int(os.environ.get("SESSIONS", "25"))


def processes():
    """Those of LONG that are left."""
    found = []
    for name in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(name, "rb") as f:
                if LONG.encode() in f.read().split(b"\0"):
                    found.append(name)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


class Leaves(Case):
    """Looks at the end that nothing is left."""

    def clean(self):
        """Ends all sessions of the usual group, and looks."""
        c = self.client()
        c.cleanup("g")
        self.assertEqual(os.listdir(self.state + "/sessions"), [])
        until(lambda: not processes())
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            mounts = f.read()
        self.assertNotIn(self.dir, mounts)
        c.call("shutdown")


class Hostile(Leaves, Watched):
    def is_sanitized(self):
        """Whether what is freed stays for a while."""
        with open(PROGRAM, "rb") as f:
            return b"__asan_init" in f.read()

    def test_half_a_conversation(self):
        """Input that ends anywhere: what is whole is answered."""
        c = self.client()
        s = c.open(self.host)
        request = json.dumps(
            {"id": "é", "method": "write_file", "params": {
                "session": s, "path": "x", "content_base64": "eA=="}},
            ensure_ascii=False,
        ).encode()
        first = b'{"id":"a","method":"capabilities","params":{}}\n'
        for size in sorted(random.sample(range(1, len(request)), 8)):
            done = subprocess.run(
                [PROGRAM, "serve", "-o", self.options],
                input=first + request[:size],
                stdout=subprocess.PIPE,
                check=True,
                timeout=60,
            )
            answers = [json.loads(line) for line in done.stdout.splitlines()]
            self.assertEqual([a["id"] for a in answers], ["a", "unknown"])
            self.assertEqual(answers[1]["error"]["code"], "invalid_request")
        self.fails("provider_failure", c.read_file, s, "x")
        self.clean()

    def test_ids_are_whatever_they_are(self):
        c = self.client()
        s = c.open(self.host)
        read = {"session": s, "path": "file"}
        for id_ in ("x", "x", "req_1", "", "x" * 60000):
            line = {"id": id_, "method": "read_file", "params": read}
            c.send_line(json.dumps(line))
        for id_ in ("x", "x", "req_1", "", "x" * 60000):
            message = c.read()
            self.assertEqual(message["id"], id_)
            self.assertEqual(message["result"], {"content_base64": "aGVsbG8K"})
        c.send_line(json.dumps({"id": "x" * (11 << 20), "method": "nope"}))
        self.assertEqual(c.read()["id"], "unknown")
        self.clean()

    def test_lines_cost_no_more_memory_than_they_are_long(self):
        c = self.client()
        s = c.open(self.host)
        many = b'{"id":"x","method":"exec","x":[' + b"1," * 5_000_000 + b"1]}"
        c.send_line(many)
        message = c.read()
        self.assertEqual(message["error"]["code"], "invalid_request")
        self.assertIn("values", message["error"]["message"])
        for line in (b"[" * (11 << 20), b'{"id":"' + b"\xff" * (11 << 20)):
            c.send_line(line)
            message = c.read()
            self.assertEqual(message["error"]["code"], "invalid_request")
        if not self.is_sanitized():
            with open(f"/proc/{self.daemon()}/status", encoding="ascii") as f:
                peak = [line for line in f if line.startswith("VmHWM")][0]
            self.assertLess(int(peak.split()[1]), 200 << 10)
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.clean()

    @LOCAL
    def test_a_client_that_never_reads(self):
        a, b = self.client(), self.client()
        s = a.open(self.host)
        a.begin("exec", {"session": s, "argv": ["yes", LONG]})
        until(processes)
        for _ in range(3):
            self.assertEqual(b.read_file(s, "file"), b"hello\n")
        self.assertEqual(b.exec(s, ["echo", "a"]), (0, b"a\n", b""))
        begin = time.monotonic()
        b.call("close", session=s)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(processes(), [])
        a.process.kill()
        self.clean()

    def test_two_clients_of_one_tree(self):
        """What each makes on the way, the other may have made."""
        s = self.client().open(self.host)
        failures = []

        def work(name):
            c = self.client()
            try:
                for i in range(40):
                    c.write_file(s, f"{i}/a/b/{name}", name.encode())
                    c.call("create_dir_all", session=s, path=f"{i}/c/d/e")
            except Failure as failure:
                failures.append(failure)

        workers = [
            threading.Thread(target=work, args=(name,)) for name in "1234"
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(failures, [])
        c = self.client()
        for name in "1234":
            self.assertEqual(c.read_file(s, f"39/a/b/{name}"), name.encode())
        self.clean()

    def test_two_clients_that_close(self):
        for _ in range(4):
            a, b = self.client(), self.client()
            sessions = [a.open(self.host) for _ in range(3)]
            ids = [c.begin("close", {"session": s})
                   for s in sessions for c in (a, b)]
            for c, id_ in zip((a, b) * 3, ids):
                self.assertEqual(c.finish("close", id_), {})
            self.fails("provider_failure", a.read_file, sessions[0], "file")
        self.clean()

    @ROOT
    def test_another_user_is_not_served(self):
        path = self.state + "/serve.sock"
        code = ("import socket, sys\n"
                "s = socket.socket(socket.AF_UNIX)\n"
                "s.settimeout(20)\n"
                "s.connect(sys.argv[1])\n"
                "try: s.send(b'{}\\n')\n"
                "except BrokenPipeError: pass\n"
                "try: print(s.recv(9))\n"
                "except ConnectionResetError: print(b'')\n")

        def connect():
            return subprocess.run(
                ["python3", "-c", code, path], user=65534, group=65534,
                extra_groups=[], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, timeout=60, cwd="/", check=False,
            )

        self.assertEqual(connect().stdout, b"")  # It comes not that far.
        for name in (self.dir, self.state, path):
            os.chmod(name, 0o777)
        self.assertEqual(connect().stdout, b"b''\n")
        os.chmod(self.state, 0o700)
        self.assertEqual(self.client().call("capabilities"), {"exec": True})
        self.clean()

    def test_directories_that_are_no_workspace(self):
        c = self.client()
        os.mkfifo(self.dir + "/fifo")
        os.symlink("loop", self.dir + "/loop")
        os.symlink(self.state, self.dir + "/to_state")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.dir + "/socket")
        for path in (
            "/", "/proc", "/sys", "/proc/self", "/proc/1/root", "/dev/null",
            self.dir, self.state, self.state + "/sessions",
            self.state + "/nope", self.dir + "/to_state",
            self.dir + "/host/../state", self.dir + "/fifo",
            self.dir + "/loop", self.dir + "/socket", self.dir + "/host/file",
            "/" + "x" * 300, "/x" * 3000, "//",
        ):
            with self.assertRaises(Failure, msg=path) as caught:
                c.open(path)
            self.assertIn(caught.exception.code,
                          ("bad_request", "bad_profile", "provider_failure"))
            self.assertEqual(os.listdir(self.state + "/sessions"), [], path)
        os.symlink(self.host, self.dir + "/to_host")
        s = c.open(self.dir + "/to_host")
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.clean()

    def test_a_directory_with_what_are_no_files(self):
        os.mkfifo(self.host + "/fifo")
        os.symlink("/etc/passwd", self.host + "/out")
        os.symlink("nowhere", self.host + "/dangling")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(self.host + "/socket")
        c = self.client()
        s = c.open(self.host)
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.fails("provider_failure", c.read_file, s, "fifo")
        if PROVIDER == "local":
            out = c.exec(s, ["readlink", "out", "dangling"])[1]
            self.assertEqual(out, b"/etc/passwd\nnowhere\n")
        self.clean()


class Strange(Leaves):
    """Words that JSON can say, and ends at any moment."""

    def ask(self, client, id_text, method, params):
        client.send_line('{"id":%s,"method":"%s","params":%s}'
                         % (id_text, method, json.dumps(params)))
        return client.read()

    def test_ids_of_all_types(self):
        c = self.client()
        s = c.open(self.host)
        read = {"session": s, "path": "file"}
        for text in ("null", "true", "false", "[]", '["x"]', "{}", '{"id":"x"}',
                     "7", "-7", "0", "1.5", "1e3", "18446744073709551616",
                     '"\\ud800"', '"\\u0000"', '"\\udcff\\udc80"'):
            message = self.ask(c, text, "read_file", read)
            self.assertIs(type(message["id"]), str, text)
            if "error" in message:
                self.assertEqual(message["id"], "unknown", text)
                self.assertEqual(message["error"]["code"], "invalid_request")
            else:
                self.assertEqual(message["result"]["content_base64"],
                                 "aGVsbG8K", text)
        for text in ("1e999", "01", "--1", "nul", '"\\ud80"', '"\\x"', ""):
            message = self.ask(c, text, "read_file", read)
            self.assertEqual(message["id"], "unknown", text)
            self.assertEqual(message["error"]["code"], "invalid_request")
        c.send_line('{"method":"capabilities","params":{}}')
        self.assertEqual(c.read()["id"], "unknown")
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.clean()

    def test_lone_surrogates_anywhere(self):
        """Those of bytes are bytes, and any other is U+FFFD."""
        c = self.client()
        s = c.open(self.host)
        for odd in ("\ud800", "a\udfff\ud800b", "\udcff", "\udc80x\udcfe"):
            seen = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", odd)
            meta = {"protocol_version": odd, "request_id": odd,
                    "sandbox_group_id": odd, "tags": {"x": odd}}
            sync = {"host_path": self.host + "/" + odd}
            for method, params in (
                ("open", {"metadata": meta,
                          "profile": {"provider": odd, "name": odd},
                          "workspace_sync": sync, "cwd": odd}),
                ("cleanup_group", {"metadata": meta, "sandbox_group_id": odd}),
                ("close", {"session": {**s, "provider_state_json": odd}}),
                ("close", {"session": {**s, "id": odd,
                                       "provider_state_json": odd}}),
                ("write_file", {"session": s, "path": odd,
                                "content_base64": odd}),
                ("create_temp_dir", {"session": s, "prefix": odd}),
                ("exec", {"session": s, "argv": [odd, odd]}),
                ("exec", {"session": s, "argv": ["true"], "cwd": odd}),
                ("exec", {"session": s, "argv": ["true"], "env": {"A": odd}}),
                ("exec", {"session": s, "argv": ["true"], "stdin_base64": odd}),
                (odd, {}),
            ):
                line = {"id": odd, "method": method, "params": params}
                c.send_line(json.dumps(line))
                message = {"event": 1}
                while "event" in message:
                    message = c.read()
                self.assertEqual(message["id"], seen, line)
                if method not in ("create_temp_dir", "cleanup_group", "exec"):
                    self.assertIn("error", message, line)
        c.write_file(s, "n\udcff", b"bytes")
        self.assertEqual(c.read_file(s, "n\udcff"), b"bytes")
        # A member's name is never bytes.
        message = self.ask(c, '"x"', "capabilities", {"\udcff": "x"})
        self.assertEqual(message["error"]["code"], "invalid_request")
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.clean()

    @LOCAL
    def test_an_end_of_input_in_the_middle_of_a_command(self):
        """It runs to its end, which is told; then there is nothing to do."""
        c = self.client()
        s = c.open(self.host)
        c.begin("exec", {"session": s, "argv": [
            "sh", "-c", "echo a; sleep 0.3; echo b > late; exit 3"]})
        c.process.stdin.close()
        result = c.finish("exec", f"req_{c.count}")
        self.assertEqual((result["exit_code"], result["stdout_base64"]),
                         (3, "YQo="))
        self.assertIsNone(c.read())
        self.assertEqual(c.process.wait(WAIT_S), 0)
        self.assertEqual(self.client().read_file(s, "late"), b"b\n")
        # Nobody is there to be told of this one.
        c = self.client()
        c.begin("exec", {"session": s, "argv": ["sleep", LONG]})
        until(processes)
        c.process.stdin.close()
        c.process.stdout.close()
        self.assertEqual(c.process.wait(WAIT_S), 0)
        until(lambda: not processes())
        self.clean()

    def test_an_end_in_the_middle_of_an_open(self):
        """Of the client, by a signal or the end of its input; what was made is
        the group's."""
        self.client().open(self.host)
        for how in ("TERM", "INT", "eof", "closed"):
            for delay in (0, 0.002, 0.01, 0.03):
                c = self.client()
                c.call("capabilities")
                Killed.begin(self, c, "open", None)
                time.sleep(delay)
                if how == "eof":
                    c.process.stdin.close()
                    c.process.stdout.read()
                elif how == "closed":
                    c.process.stdout.close()
                    c.process.stdin.close()
                else:
                    c.process.send_signal(getattr(signal, "SIG" + how))
                c.process.wait(WAIT_S)
        self.clean()

    def test_the_end_of_the_daemon_in_the_middle_of_an_open(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for delay in (0, 0.01, 0.03):
                c = self.client(stderr=subprocess.DEVNULL)
                c.call("capabilities")
                Killed.begin(self, c, "open", None)
                time.sleep(delay)
                self.end_daemon(number)
                c.process.stdout.read()
                c.process.wait(WAIT_S)
        self.clean()

    def test_many_sessions_and_no_goodbye(self):
        c = self.client()
        sessions = [c.open(self.host) for _ in range(SESSIONS)]
        if PROVIDER == "local":
            c.call("spawn", session=sessions[0], argv=["sleep", LONG])
        self.assertEqual(c.end(), 0)
        c = self.client()
        self.assertEqual(c.cleanup("g"), SESSIONS)
        self.assertEqual(c.cleanup("g"), 0)
        self.assertEqual(c.end(), 0)
        self.clean()


class Killed(Leaves):
    """kill -9, of the process that a client has started and of the daemon."""

    def requests(self, session):
        data = "QUJD" * 700_000
        sleep = ["sh", "-c", f"echo a; sleep {LONG}"]
        if PROVIDER == "mem":
            sleep = ["spam", "1000000"]
        return [
            ("exec", {"session": session, "argv": sleep}),
            ("write_file", {"session": session, "path": "big",
                            "content_base64": data}),
            ("read_file", {"session": session, "path": "big"}),
            ("create_dir_all", {"session": session, "path": "a/b/c"}),
            ("remove", {"session": session, "path": "a"}),
            ("open", None),
        ] + ([
            ("spawn", {"session": session, "argv": sleep}),
            ("create_temp_dir", {"session": session, "prefix": "x"}),
            ("write_file", {"session": session, "path": "/tmp/big",
                            "content_base64": data}),
        ] if PROVIDER == "local" else [])

    def begin(self, client, method, params):
        if method == "open":
            params = {
                "metadata": {"protocol_version": "sandbox.v1",
                             "request_id": "r", "sandbox_group_id": "g"},
                "profile": {"provider": "x", "name": "default"},
                "workspace_sync": {"host_path": self.host},
            }
        client.begin(method, params)

    def test_the_process_at_each_moment(self):
        c = self.client()
        s = c.open(self.host)
        c.write_file(s, "big", b"ABC" * 700_000)
        for delay in (0, 0.001, 0.01, 0.05):
            for method, params in self.requests(s):
                a = self.client()
                a.call("capabilities")
                self.begin(a, method, params)
                time.sleep(delay)
                a.process.kill()
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.assertEqual(c.read_file(s, "big"), b"ABC" * 700_000)
        if PROVIDER == "local":
            # Only what was spawned lives on.
            until(lambda: len(processes()) <= 2 * 4)
            c.call("remove", session=s, path="a")
            until(lambda: c.exec(s, ["ls", "-A"])[1]
                  == b"big\nfile\nlink\nsub\n")
        self.clean()

    @LOCAL
    def test_the_daemon_at_each_moment(self):
        a = self.client()
        s = a.open(self.host)
        a.write_file(s, "big", b"ABC" * 700_000)
        for delay in (0, 0.004, 0.03):
            for method, params in self.requests(s):
                a = self.client(stderr=subprocess.DEVNULL)
                a.call("capabilities")
                self.begin(a, method, params)
                time.sleep(delay)
                self.end_daemon(signal.SIGKILL)
                a.process.stdout.read()
                self.assertEqual(a.process.wait(WAIT_S), 1)
        c = self.client()
        self.assertEqual(c.read_file(s, "file"), b"hello\n")
        self.assertEqual(c.read_file(s, "big"), b"ABC" * 700_000)
        self.assertEqual(c.exec(s, ["echo", "a"]), (0, b"a\n", b""))
        pid = c.call("spawn", session=s, argv=["sleep", LONG])["process_id"]
        self.assertEqual(signal_to(c, s, "0", pid), 0)
        self.clean()
