"""A client of the protocol sandbox.v1 that checks every line against the
protocol's schema: what it sends and what comes back."""
import base64
import json
import os
import select
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "fakes"))
from sandbox_schema import Bad, check_answer, check_request  # noqa: E402

DEADLINE_S = 60


class Failure(Exception):
    """The provider answered with an error."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]
        self.retryable = error.get("retryable", False)


class Client:
    """One process of a provider."""

    def __init__(self, argv, **more):
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **more
        )
        self.count = 0
        self.ahead = b""
        self.events = []

    def send_line(self, line):
        data = line if isinstance(line, bytes) else line.encode()
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def read_line(self):
        """A line; b"" at the end."""
        fd = self.process.stdout.fileno()
        pieces = [self.ahead]
        end = time.monotonic() + DEADLINE_S
        while b"\n" not in pieces[-1]:
            if not select.select([fd], [], [], end - time.monotonic())[0]:
                raise TimeoutError("no answer")
            pieces.append(os.read(fd, 1 << 20))
            if not pieces[-1]:
                break
        line, _, self.ahead = b"".join(pieces).partition(b"\n")
        return line

    def read(self):
        """A message; None at the end."""
        line = self.read_line()
        if not line:
            return None
        return json.loads(line.decode("utf-8"))

    def begin(self, method, params):
        self.count += 1
        request = {"id": f"req_{self.count}", "method": method, "params": params}
        check_request(request)
        self.send_line(json.dumps(request))
        return request["id"]

    def finish(self, method, id_):
        """The result of a request; its events are in `events`."""
        self.events = []
        while True:
            message = self.read()
            if message is None:
                raise EOFError(f"{method}: the provider ended")
            if message["id"] != id_:
                raise Bad(f"{method}: an answer to {message['id']}")
            check_answer(method, message)
            if "event" in message:
                self.events.append(message["event"])
            elif "error" in message:
                raise Failure(message["error"])
            else:
                return message["result"]

    def call(self, method, **params):
        return self.finish(method, self.begin(method, params))

    # What the methods are for.

    def open(self, host_path, group="g", profile="default", **more):
        return self.call(
            "open",
            metadata={
                "protocol_version": "sandbox.v1",
                "request_id": "r",
                "sandbox_group_id": group,
            },
            profile={"provider": "sessionfs", "name": profile},
            workspace_sync={"host_path": host_path},
            **more,
        )

    def cleanup(self, group):
        return self.call(
            "cleanup_group",
            metadata={
                "protocol_version": "sandbox.v1",
                "request_id": "r",
                "sandbox_group_id": group,
            },
            sandbox_group_id=group,
        )["cleaned_count"]

    def read_file(self, session, path):
        answer = self.call("read_file", session=session, path=path)
        return base64.b64decode(answer["content_base64"], validate=True)

    def write_file(self, session, path, data):
        self.call(
            "write_file",
            session=session,
            path=path,
            content_base64=base64.b64encode(data).decode(),
        )

    def exec(self, session, argv, data=None, **more):
        """exit code, stdout, stderr; what was streamed is the same."""
        if data is not None:
            more["stdin_base64"] = base64.b64encode(data).decode()
        result = self.call("exec", session=session, argv=argv, **more)
        out = base64.b64decode(result["stdout_base64"], validate=True)
        err = base64.b64decode(result["stderr_base64"], validate=True)
        self.check_events(result["exit_code"], {"stdout": out, "stderr": err})
        return result["exit_code"], out, err

    def check_events(self, code, outputs):
        kinds = [event["type"] for event in self.events]
        if kinds[0] != "started" or kinds[-1] != "exited":
            raise Bad(f"events: {kinds}")
        if not self.events[0].get("process_id"):
            raise Bad("started without a process_id")
        if self.events[-1]["exit_code"] != code:
            raise Bad("another exit code")
        for name, whole in outputs.items():
            parts = [
                base64.b64decode(event["data_base64"], validate=True)
                for event in self.events[1:-1]
                if event["type"] == name
            ]
            if b"".join(parts) != whole:
                raise Bad(f"{name}: streamed otherwise than told at the end")

    def end(self):
        """The end of input; the exit status."""
        self.process.stdin.close()
        return self.wait()

    def wait(self):
        code = self.process.wait(DEADLINE_S)
        self.process.stdout.close()
        return code
