"""Each kind of message of the protocol, and that the check of them is one."""
import base64

from sandbox_schema import METHODS, Bad, check_answer, check_request
from serve_case import LOCAL, Watched

SESSION = {"id": "s"}
METADATA = {
    "protocol_version": "sandbox.v1",
    "request_id": "r",
    "sandbox_group_id": "g",
}


def request(method, **params):
    return {"id": "x", "method": method, "params": params}


class Schema(Watched):
    @LOCAL
    def test_each_method_and_each_event_is_as_it_says(self):
        """What a client reads and writes is checked by the client."""
        c = self.client()
        seen = set()
        events = set()

        def call(method, **params):
            result = c.call(method, **params)
            seen.add(method)
            events.update(event["type"] for event in c.events)
            return result

        call("capabilities")
        s = c.open(self.host, tags={"a": "b"})
        seen.add("open")
        data = base64.b64encode(b"x").decode()
        where = call("create_temp_dir", session=s, prefix="p")["path"]
        call("create_dir_all", session=s, path="a/b")
        call("write_file", session=s, path=where + "/f", content_base64=data)
        got = call("read_file", session=s, path=where + "/f")
        self.assertEqual(got, {"content_base64": data})
        call("remove", session=s, path=where)
        argv = ["sh", "-c", "cat; echo $A; pwd; echo e >&2"]
        more = {"cwd": "a/b", "env": {"A": "b"}, "stdin_base64": data}
        call("exec", session=s, argv=argv, **more)
        call("spawn", session=s, argv=["sleep", "1000"], **more)
        call("close", session=s)
        other = c.open(self.host)
        call("cleanup_group", metadata=METADATA, sandbox_group_id="g")
        self.fails("provider_failure", c.read_file, other, "file")
        call("shutdown")
        self.assertEqual(seen, METHODS)
        self.assertEqual(events, {"started", "stdout", "stderr", "exited"})
        self.assertEqual(len(METHODS), 12)

    def test_the_check_finds_what_is_wrong(self):
        for bad in (
            {},
            {"id": 1, "method": "shutdown", "params": {}},
            {"id": "x", "method": "shutdown"},
            request("nope"),
            request("shutdown", more=1),
            request("close"),
            request("close", session={"id": 5}),
            request("open", metadata=METADATA, profile={"name": "x"}),
            request("cleanup_group", metadata={}, sandbox_group_id="g"),
            request("create_temp_dir", session=SESSION),
            request("create_dir_all", session=SESSION, path=5),
            request("write_file", session=SESSION, path="x"),
            request("read_file", session="s", path="x"),
            request("remove", path="x"),
            request("exec", session=SESSION, argv="x"),
            request("exec", session=SESSION, argv=["x"], env={"A": 1}),
            request("spawn", session=SESSION, argv=["x", None]),
        ):
            with self.assertRaises(Bad, msg=bad):
                check_request(bad)
        for method, bad in (
            ("exec", {"result": {}}),
            ("exec", {"result": {"exit_code": 2**31}}),
            ("exec", {"result": {"exit_code": 0, "stdout_base64": None}}),
            ("exec", {"event": {}}),
            ("exec", {"event": {"type": "else"}}),
            ("exec", {"event": {"type": "started", "process_id": 5}}),
            ("exec", {"event": {"type": "stdout"}}),
            ("exec", {"event": {"type": "exited"}}),
            ("exec", {"error": {"code": "x"}}),
            ("exec", {"error": {"code": 5, "message": "x"}}),
            ("exec", {}),
            ("exec", {"result": {"exit_code": 0}, "error": None}),
            ("exec", {"result": {"exit_code": 0}, "more": 1}),
            ("spawn", {"event": {"type": "stdout", "data_base64": "eA=="}}),
            ("spawn", {"result": {"process_id": 5}}),
            ("open", {"result": {"cwd": "/"}}),
            ("open", {"result": {"id": "x", "capabilities": None}}),
            ("read_file", {"result": {}}),
            ("create_temp_dir", {"result": {"path": None}}),
            ("cleanup_group", {"result": {}}),
            ("cleanup_group", {"result": {"cleaned_count": True}}),
            ("capabilities", {"result": {"exec": 1}}),
            ("close", {"result": None}),
            ("write_file", {"result": {"more": 1}}),
            ("shutdown", {"event": {"type": "exited", "exit_code": 0}}),
        ):
            with self.assertRaises(Bad, msg=(method, bad)):
                check_answer(method, dict(bad, id="x"))
        with self.assertRaises(Bad):
            check_answer("shutdown", {"result": {}})
