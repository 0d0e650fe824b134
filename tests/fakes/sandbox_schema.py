"""The messages of the protocol sandbox.v1, checked against its schema: as much
of JSON Schema draft 7 as that uses."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "sandbox.v1.schema.json"), encoding="utf-8") as f:
    SCHEMA = json.load(f)

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
}


class Bad(Exception):
    """A value is not what the schema says."""


def is_valid(schema, value, where):
    try:
        check(schema, value, where)
        return True
    except Bad:
        return False


def check(schema, value, where):
    """Checks a value by a schema: as much of draft 7 as the protocol uses."""
    if schema is True:
        return
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        check(SCHEMA["definitions"][name], value, where)
        return
    for part in schema.get("allOf", []):
        check(part, value, where)
    if "anyOf" in schema and not any(
        is_valid(part, value, where) for part in schema["anyOf"]
    ):
        raise Bad(f"{where}: none of anyOf: {value!r}")
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and not any(TYPES[t](value) for t in types):
        raise Bad(f"{where}: {value!r} is not of {types}")
    if schema.get("format") == "int32" and value is not None:
        if not -(2**31) <= value < 2**31:
            raise Bad(f"{where}: {value} is no int32")
    if isinstance(value, dict):
        check_members(schema, value, where)
    if isinstance(value, list):
        for item in value:
            check(schema.get("items", True), item, where + "[]")


def check_members(schema, value, where):
    known = schema.get("properties", {})
    for key in schema.get("required", []):
        if key not in value:
            raise Bad(f"{where}: '{key}' is missing")
    for key, item in value.items():
        rule = known.get(key, schema.get("additionalProperties", True))
        check(rule, item, f"{where}.{key}")


def check_as(name, value, where):
    check({"$ref": "#/definitions/" + name}, value, where)


REQUESTS = {
    "open": "OpenSandboxRequest",
    "cleanup_group": "CleanupSandboxGroupRequest",
    "create_temp_dir": "CreateTempDirRequest",
    "create_dir_all": "SessionPathRequest",
    "read_file": "SessionPathRequest",
    "remove": "SessionPathRequest",
    "write_file": "WriteFileRequest",
    "exec": "SandboxExecRequest",
    "spawn": "SandboxSpawnRequest",
}
RESULTS = {
    "capabilities": "Capabilities",
    "open": "SandboxSession",
    "create_temp_dir": "CreateTempDirResult",
    "read_file": "ReadFileResult",
    "exec": "SandboxExecResult",
    "spawn": "SandboxSpawnResult",
}
NOTHING = {"close", "create_dir_all", "write_file", "remove", "shutdown"}
EVENTS = {"started", "stdout", "stderr", "exited"}
METHODS = set(REQUESTS) | set(RESULTS) | NOTHING


def check_request(request):
    """What goes to a provider."""
    check_as("JsonlRequestEnvelope_for_AnyValue", request, "request")
    method, params = request["method"], request["params"]
    if method not in METHODS:
        raise Bad(f"request: '{method}' is no method")
    if method == "close":
        check_members({"required": ["session"]}, params, "params")
        check_as("SandboxSession", params["session"], "params.session")
    elif method in REQUESTS:
        check_as(REQUESTS[method], params, "params")
    elif params != {}:
        raise Bad(f"params of {method}: {params!r}")


def check_answer(method, message):
    """What comes back: an event, an error or a result."""
    check_as("JsonlResponseEnvelope", message, "answer")
    if not set(message) <= {"id", "result", "error", "event"}:
        raise Bad(f"answer: more members: {message!r}")
    kinds = [key for key in ("event", "error", "result") if key in message]
    if len(kinds) != 1:
        raise Bad(f"answer: {kinds}")
    if kinds == ["event"]:
        check_event(method, message["event"])
    elif kinds == ["error"]:
        check_as("ProviderError", message["error"], "error")
    else:
        check_result(method, message["result"])


def check_event(method, event):
    check_as("SandboxExecEvent", event, "event")
    kind = event["type"]
    if kind not in (EVENTS if method == "exec" else {"started"}):
        raise Bad(f"event of {method}: {kind}")
    if kind in ("stdout", "stderr") and not event.get("data_base64"):
        raise Bad(f"event: {kind} without data")
    if kind == "exited" and "exit_code" not in event:
        raise Bad("event: exited without a code")


def check_result(method, result):
    if method in RESULTS:
        check_as(RESULTS[method], result, "result")
    elif method == "cleanup_group":
        if set(result) != {"cleaned_count"}:
            raise Bad(f"cleanup_group: {result}")
        if not TYPES["integer"](result["cleaned_count"]):
            raise Bad(f"cleanup_group: {result}")
    elif result != {}:
        raise Bad(f"{method}: {result}")
