#!/usr/bin/python3
"""A program that speaks sandbox.v1, as a provider of sandboxes does that are
directories of this machine: no isolation at all. For tests.

usage: sandbox_program.py serve

Each message is held against the protocol's schema: a request that is not as it
says is refused with the code `schema`.

FAKE_ROOT      where sandboxes lie
FAKE_LOG       a file that gets each request's method

While there is a file faults/METHOD@SESSION in FAKE_ROOT, requests of that kind
for the sandbox of that session are not answered.
"""
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # The sources are not ours to add to.

from sandbox_schema import Bad, check_answer, check_request

ROOT = os.environ["FAKE_ROOT"]


class Refusal(Exception):
    def __init__(self, code, message, retryable=False):
        super().__init__(message)
        self.body = {"code": code, "message": message, "retryable": retryable}


# ---- The protocol ----

def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def state_of(params):
    return json.loads(params["session"]["provider_state_json"])


def session_of(params):
    """The id of the session that a request is about, where it tells."""
    if "session" in params:
        return state_of(params).get("for")
    return params.get("metadata", {}).get("tags", {}).get("session")


def wait_while_stuck(method, params):
    path = os.path.join(ROOT, "faults", f"{method}@{session_of(params)}")
    while os.path.exists(path):
        time.sleep(0.01)


def place(params, name="path"):
    """A path of the sandbox as one of this machine."""
    cwd = params["session"].get("cwd") or state_of(params)["dir"]
    path = params.get(name)
    return os.path.join(cwd, path) if path else cwd


def do_open(params, _send):
    group = params["metadata"]["sandbox_group_id"].replace("/", "_")
    os.makedirs(os.path.join(ROOT, group), exist_ok=True)
    where = tempfile.mkdtemp(prefix="s-", dir=os.path.join(ROOT, group))
    host = params["workspace_sync"]["host_path"]
    shutil.copytree(host, where, symlinks=True, dirs_exist_ok=True)
    os.chmod(where, 0o755)
    cwd = params.get("cwd")
    if cwd:
        cwd = os.path.join(where, cwd.lstrip("/"))
    # As Python writes what is no UTF-8; it must come back as it is.
    state = {"dir": where, "for": session_of(params), "odd": "\udcff\u00e9"}
    return {"id": os.path.basename(where), "cwd": cwd or where,
            "provider_session_id": None, "capabilities": {"exec": True},
            "provider_state_json": json.dumps(state), "more": [1.5, "\udc80"]}


def do_close(params, _send):
    if params["session"]["more"] != [1.5, "\udc80"]:
        raise Refusal("bad_session", "the session is not as it was given")
    shutil.rmtree(state_of(params)["dir"], ignore_errors=True)
    return {}


def do_cleanup_group(params, _send):
    group = os.path.join(ROOT, params["sandbox_group_id"].replace("/", "_"))
    count = len(os.listdir(group)) if os.path.isdir(group) else 0
    shutil.rmtree(group, ignore_errors=True)
    return {"cleaned_count": count}


def do_create_temp_dir(params, _send):
    return {"path": tempfile.mkdtemp(prefix=params["prefix"],
                                     dir=state_of(params)["dir"])}


def do_create_dir_all(params, _send):
    os.makedirs(place(params), exist_ok=True)
    return {}


def do_write_file(params, _send):
    with open(place(params), "wb") as file:
        file.write(base64.b64decode(params["content_base64"], validate=True))
    return {}


def do_read_file(params, _send):
    with open(place(params), "rb") as file:
        return {"content_base64": base64.b64encode(file.read()).decode()}


def do_remove(params, _send):
    path = place(params)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    return {}


def start(params, out):
    if not params["argv"]:
        raise Refusal("bad_request", "argv is empty")
    if not os.path.isdir(state_of(params)["dir"]):
        raise Refusal("provider_failure", "no such directory")
    env = dict(os.environ)
    for name in [name for name in env if name.startswith("FAKE_")]:
        del env[name]
    env.update(params.get("env") or {})
    given = params.get("stdin_base64")
    return subprocess.Popen(
        params["argv"], cwd=place(params, "cwd"), env=env, stdout=out,
        stderr=out, start_new_session=True,
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE)


def pump(pipe, kind, send, kept, lock):
    while True:
        data = os.read(pipe.fileno(), 65536)
        if not data:
            return
        kept[kind].append(data)
        with lock:
            send({"type": kind,
                  "data_base64": base64.b64encode(data).decode()})


def feed(process, given):
    try:
        process.stdin.write(base64.b64decode(given))
        process.stdin.close()
    except BrokenPipeError:
        pass


def do_exec(params, send):
    process = start(params, subprocess.PIPE)
    send({"type": "started", "process_id": str(process.pid)})
    kept = {"stdout": [], "stderr": []}
    lock = threading.Lock()
    threads = [threading.Thread(target=pump, args=(pipe, kind, send, kept,
                                                   lock))
               for pipe, kind in ((process.stdout, "stdout"),
                                  (process.stderr, "stderr"))]
    given = params.get("stdin_base64")
    if given is not None:
        threads.append(threading.Thread(target=feed, args=(process, given)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = process.wait()
    send({"type": "exited", "exit_code": code})
    return {"exit_code": code,
            "stdout_base64": base64.b64encode(
                b"".join(kept["stdout"])).decode(),
            "stderr_base64": base64.b64encode(
                b"".join(kept["stderr"])).decode()}


SPAWNED = []


def do_spawn(params, send):
    process = start(params, subprocess.DEVNULL)
    SPAWNED.append(process)
    send({"type": "started", "process_id": str(process.pid)})
    return {"process_id": str(process.pid)}


def do_capabilities(_params, _send):
    return {"exec": True}


def do_shutdown(_params, _send):
    return {}


METHODS = {name[3:]: fn for name, fn in list(globals().items())
           if name.startswith("do_")}


def handle(request, send):
    method = request["method"]
    if method not in METHODS:
        raise Refusal("unknown_method", method)
    try:
        check_request(request)
    except Bad as bad:
        raise Refusal("schema", str(bad)) from None
    wait_while_stuck(method, request["params"])
    return METHODS[method](request["params"], send)


def note(method):
    path = os.environ.get("FAKE_LOG")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(method + "\n")


def answer(request):
    method = request["method"]

    def tell(kind, body):
        message = {"id": request.get("id", ""), kind: body}
        check_answer(method, message)
        say(message)

    note(method)
    try:
        result = handle(request, lambda event: tell("event", event))
        tell("result", result)
    except Refusal as refusal:
        tell("error", refusal.body)
    except Exception as error:  # As such programs do.
        print(f"{method}: {error!r}", file=sys.stderr)
        tell("error", {"code": "provider_failure", "message": str(error),
                       "retryable": False})
    if method == "shutdown":
        sys.exit(0)


def serve():
    # Commands do not ignore it, as they would by SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    for line in sys.stdin:
        if line.strip():
            answer(json.loads(line))


if __name__ == "__main__":
    if sys.argv[1:] != ["serve"]:
        sys.exit("usage: sandbox_program.py serve")
    serve()
