"""The processes of `sessionfs serve`: many, killed, over a mount, and one over
the other."""
import base64
import fcntl
import glob
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import time

from sandbox_v1 import Client
from serve_case import LOCAL, PROGRAM, PROVIDER, WAIT_S, Case, signal_to, until


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
        a.begin("exec", {"session": s, "argv": ["sleep", "1000"]})
        pid = a.read()["event"]["process_id"]
        self.assertEqual(signal_to(b, s, "0", pid), 0)
        a.process.kill()
        until(lambda: signal_to(b, s, "0", pid) != 0)
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
        self.assertEqual(signal_to(b, s, "0", pid), 0)
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
        pid = a.read()["event"]["process_id"]
        self.assertEqual(signal_to(b, s, "0", pid), 0)
        a.process.stdout.close()
        self.assertEqual(a.process.wait(WAIT_S), 0)
        until(lambda: signal_to(b, s, "0", pid) != 0)

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
        done = self.run_it("--help")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        for word in (b"Usage: sessionfs serve", b"sandbox.v1", b"-o state="):
            self.assertIn(word, done.stdout)
        for word in (b"MOUNTPOINT", b"-o gid", b"--ready-fd"):
            self.assertNotIn(word, done.stdout)
        for args in (("x",), ("-o", "nope"), ("-o", "ro"), ("--nope",)):
            done = self.run_it(*args)
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertNotEqual(done.stderr, b"")
            self.assertNotIn(b"MOUNTPOINT", done.stderr)

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
