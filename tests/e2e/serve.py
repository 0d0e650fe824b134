#!/usr/bin/env python3
"""`sessionfs serve` by its protocol: each line is checked against the schema.
usage: serve.py PROGRAM PROVIDER [TEST...]"""
import glob
import json
import os
import sys
import time
import unittest

from serve_case import LOCAL, PROVIDER, Watched, signal_to, until
from serve_hostile import Hostile, Killed, Strange
from serve_processes import Chain, Mounted, Processes, Program
from serve_schema import Schema

# Found here, as those below.
__all__ = [
    "Chain", "Hostile", "Killed", "Mounted", "Processes", "Program", "Schema",
    "Strange",
]


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
        self.assertEqual(signal_to(c, s, "0", pid), 0)
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
        self.assertEqual(signal_to(c, s, "0", got["process_id"]), 0)
        # What it wrote is nowhere.
        self.assertEqual(max(self.log_sizes()), 2)
        self.assertEqual(signal_to(c, s, "TERM", got["process_id"]), 0)
        until(lambda: signal_to(c, s, "0", got["process_id"]) != 0)
        c.call("close", session=s)


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
        for name in ("cleanup_sandbox_group", "", "Open", "open ", "stat"):
            request = {"id": "x", "method": name, "params": {}}
            message = self.answer(c, json.dumps(request))
            self.assertEqual(message["error"]["code"], "unknown_method")
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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=2)
