#!/usr/bin/python3
"""sandbox_program.py, gone wrong: once, where $FAKE_ROOT/armed names a beast
of below and the method at which it shows itself. For tests.

usage: zoo.py serve
"""
import base64
import json
import os
import signal
import sys
import time

sys.dont_write_bytecode = True  # The sources are not ours to add to.

import sandbox_program as good

ARMED = os.path.join(good.ROOT, "armed")


def raw(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data):]


def line(message):
    raw(json.dumps(message) + "\n")


def b64(data):
    return base64.b64encode(data).decode()


BEASTS = {}


def beast(fn):
    BEASTS[fn.__name__] = fn
    return fn


def says(name, text):
    """A beast that answers with a line as it is; $ID is the request's id."""
    BEASTS[name] = lambda request: raw(
        text.replace(b"$ID", request["id"].encode())
        if isinstance(text, bytes)
        else text.replace("$ID", request["id"]))


def answers(name, result):
    BEASTS[name] = lambda request: line({"id": request["id"],
                                         "result": result})


# ---- Lines that are none ----

says("words", "ready to serve\n")
says("an_array", "[1, 2]\n")
says("a_number", "42\n")
says("half_a_line", '{"id":"$ID","resu\n')
says("no_id", '{"result":{"exit_code":0}}\n')
says("a_future_id", '{"id":"req_99999","result":{"exit_code":0}}\n')
says("a_strange_id", '{"id":"abc","result":{"exit_code":0}}\n')
says("a_number_as_id", '{"id":1,"result":{"exit_code":0}}\n')
says("null_as_id", '{"id":null,"result":{"exit_code":0}}\n')
says("two_of_a_key", '{"id":"$ID","id":"$ID","result":{"exit_code":0}}\n')
says("a_bad_escape", '{"id":"$ID","result":{"exit_code":0,"x":"\\q"}}\n')
says("a_byte_order_mark", '\ufeff{"id":"$ID","result":{"exit_code":0}}\n')
says("too_deep", '{"id":"$ID","result":' + "[" * 100000 + "\n")


says("an_endless_number", '{"id":"$ID","result":{"exit_code":'
     + "9" * 5000 + "}}\n")
says("a_number_beyond_all", '{"id":"$ID","result":{"exit_code":1e999}}\n')
says("very_many_values", '{"id":"$ID","result":{"exit_code":0,"x":['
     + "[],{}," * 2000000 + "[]]}}\n")
says("deep_but_not_too", '{"id":"$ID","result":{"exit_code":0,'
     '"stdout_base64":"d2VsbAo=","x":' + "[" * 1000 + "]" * 1000 + "}}\n")


@beast
def an_endless_line(request):
    raw('{"id":"%s","result":{"x":"' % request["id"])
    for _ in range(70):
        raw(b"x" * 1048576)


# ---- Failures told in odd ways ----

says("id_is_empty", '{"id":"","error":{"code":"odd","message":"cannot read"}}'
     "\n")
says("id_is_unknown", '{"id":"unknown","error":{"code":"invalid_request",'
     '"message":"cannot read"}}\n')
says("error_is_text", '{"id":"$ID","error":"all is lost"}\n')
says("error_is_empty", '{"id":"$ID","error":{}}\n')
says("error_and_result", '{"id":"$ID","result":{"exit_code":0},'
     '"error":{"code":"c","message":"the error counts"}}\n')
says("a_lone_surrogate", '{"id":"$ID","error":{"code":"c","message":'
     '"file \\udcff\\ud800 is bad"}}\n')
says("raw_bytes", b'{"id":"$ID","error":{"code":"c","message":'
     b'"file \xff\xfe is bad"}}\n')
says("a_nul", '{"id":"$ID","error":{"code":"c","message":"a\\u0000b"}}\n')
says("newlines_in_words", '{"id":"$ID","error":{"code":"c","message":'
     '"one\\nERROR two"}}\n')
says("long_words", '{"id":"$ID","error":{"code":"c","message":"'
     + "very " * 100000 + 'long"}}\n')
says("no_such_method", '{"id":"$ID","error":{"code":"unknown_method",'
     '"message":"what?"}}\n')
says("session_unknown", '{"id":"$ID","error":{"code":"session_not_found",'
     '"message":"who?"}}\n')


@beast
def try_again(request):
    line({"id": request["id"], "error": {"code": "busy", "message": "later",
                                         "retryable": True}})


@beast
def try_for_ever(request):
    with open(ARMED, "w", encoding="utf-8") as file:
        file.write("try_for_ever " + request["method"])
    try_again(request)


# ---- Results that are none ----

says("nothing", '{"id":"$ID"}\n')
says("null_as_result", '{"id":"$ID","result":null}\n')
answers("text_as_result", "fine")
answers("a_list_as_result", [0])
answers("no_exit_code", {"stdout_base64": ""})
answers("exit_code_is_text", {"exit_code": "0"})
answers("exit_code_is_huge", {"exit_code": 1 << 40})
answers("exit_code_is_real", {"exit_code": 0.5})
answers("no_base64", {"exit_code": 0, "stdout_base64": "%%%"})
answers("base64_is_a_number", {"exit_code": 0, "stdout_base64": 5})
answers("no_content", {})
answers("content_is_no_base64", {"content_base64": "a"})
answers("no_path", {})
answers("no_count", {})
answers("a_count_of_text", {"cleaned_count": "all"})

# ---- Sessions that are none ----

answers("session_without_id", {"cwd": "/", "capabilities": {"exec": True}})
answers("session_with_a_number", {"id": 5, "capabilities": {"exec": True}})
answers("session_with_empty_id", {"id": "", "capabilities": {"exec": True}})
answers("session_too_large", {"id": "x", "provider_state_json": "x" * 9000000})


def opened(request, change):
    session = good.do_open(request["params"], None)
    change(session)
    line({"id": request["id"], "result": session})


@beast
def session_with_raw_bytes(request):
    """Its own members and its directory hold what no UTF-8 is."""
    session = good.do_open(request["params"], None)
    where = json.loads(session["provider_state_json"])["dir"]
    odd = where + "\udcff"
    os.rename(where, odd)
    session["cwd"] = odd
    session["provider_state_json"] = json.dumps({"dir": odd}).replace(
        "\\udcff", "\udcff")
    raw(json.dumps({"id": request["id"], "result": session},
                   ensure_ascii=False).encode("utf-8", "surrogateescape")
        + b"\n")


@beast
def session_without_cwd(request):
    opened(request, lambda session: session.pop("cwd"))


@beast
def session_without_capabilities(request):
    opened(request, lambda session: session.pop("capabilities"))


# ---- What comes at the wrong time ----

def go_on(request):
    good.answer(request)


@beast
def blank_lines(request):
    raw("\n   \n\r\n")
    good.say = lambda message: raw(json.dumps(message) + "\r\n\n")
    go_on(request)
    good.say = line


@beast
def more_members(request):
    say = good.say
    good.say = lambda message: line(dict(message, jsonrpc="2.0", more=[{}]))
    go_on(request)
    good.say = say


@beast
def a_late_event(request):
    line({"id": "req_1", "event": {"type": "stdout", "data_base64": "eA=="}})
    go_on(request)


@beast
def a_second_answer(request):
    go_on(request)
    line({"id": request["id"], "result": {"exit_code": 77}})


@beast
def an_event_behind(request):
    go_on(request)
    line({"id": request["id"], "event": {"type": "stdout",
                                         "data_base64": "eA=="}})


@beast
def an_event_for_no_command(request):
    line({"id": request["id"], "event": {"type": "stdout",
                                         "data_base64": "eA=="}})
    go_on(request)


@beast
def byte_by_byte(request):
    def slowly(message):
        for byte in (json.dumps(message) + "\n").encode():
            os.write(1, bytes([byte]))
    say = good.say
    good.say = slowly
    go_on(request)
    good.say = say


@beast
def a_byte_a_while(request):
    for byte in json.dumps({"id": request["id"], "result": {}}).encode():
        os.write(1, bytes([byte]))
        time.sleep(0.2)


@beast
def no_end_of_line(request):
    good.say = lambda message: raw(
        json.dumps(message) + ("\n" if "event" in message else ""))
    go_on(request)
    os._exit(0)


# ---- Events that are odd ----

def event(request, kind, **members):
    line({"id": request["id"], "event": dict(members, type=kind)})


def result(request, code=0, out=b""):
    line({"id": request["id"], "result": {"exit_code": code,
                                          "stdout_base64": b64(out)}})


@beast
def an_unknown_event(request):
    event(request, "started", process_id="1")
    event(request, "progress", percent=50)
    event(request, "stdout", data_base64=b64(b"well\n"))
    result(request, out=b"well\n")


@beast
def an_event_without_type(request):
    line({"id": request["id"], "event": {"data_base64": ""}})


@beast
def an_event_of_text(request):
    line({"id": request["id"], "event": "stdout"})


@beast
def an_event_without_base64(request):
    event(request, "stdout", data_base64="?")


@beast
def a_number_as_pid(request):
    event(request, "started", process_id=5)
    result(request, out=b"well\n")


@beast
def no_data(request):
    event(request, "stdout")
    event(request, "stdout", data_base64=None)
    result(request, out=b"well\n")


@beast
def output_behind_the_end(request):
    event(request, "exited", exit_code=0)
    event(request, "stdout", data_base64=b64(b"well\n"))
    result(request, out=b"well\n")


@beast
def two_exit_codes(request):
    event(request, "exited", exit_code=3)
    result(request, code=4)


@beast
def the_code_in_the_event(request):
    event(request, "exited", exit_code=4)
    line({"id": request["id"], "result": {}})


@beast
def only_events(request):
    event(request, "stdout", data_base64=b64(b"well\n"))
    line({"id": request["id"], "result": {"exit_code": 0}})


@beast
def half_in_events(request):
    event(request, "stdout", data_base64=b64(b"we"))
    result(request, out=b"well\n")


@beast
def other_in_the_end(request):
    event(request, "stdout", data_base64=b64(b"x" * 3000000))
    result(request, out=b"x" * 3000003)


@beast
def event_and_result(request):
    line({"id": request["id"], "result": {"exit_code": 9},
          "event": {"type": "stdout", "data_base64": b64(b"well\n")}})
    result(request, out=b"well\n")


@beast
def code_minus_one(request):
    result(request, code=-1)


@beast
def code_minus_64(request):
    result(request, code=-64)


@beast
def code_minus_65(request):
    result(request, code=-65)


@beast
def the_smallest_code(request):
    result(request, code=-2**31)


@beast
def a_start_behind_the_output(request):
    event(request, "stdout", data_base64=b64(b"we"))
    event(request, "started", process_id="77")
    event(request, "exited", exit_code=0)
    event(request, "started", process_id="78")
    event(request, "stdout", data_base64=b64(b"ll\n"))
    result(request, out=b"well\n")


@beast
def an_event_of_another(request):
    """Of a request that will be, and of one that never was."""
    line({"id": "req_%d" % (int(request["id"][4:]) + 1),
          "event": {"type": "stdout", "data_base64": b64(b"not well\n")}})
    time.sleep(0.2)
    go_on(request)


# ---- Processes that fail ----

@beast
def dies(_request):
    print("no more disk", file=sys.stderr)
    os._exit(3)


@beast
def is_killed(_request):
    os.kill(os.getpid(), signal.SIGKILL)


@beast
def dies_in_the_middle(request):
    event(request, "started", process_id="1")
    time.sleep(0.2)
    os._exit(0)


@beast
def dies_within_a_line(request):
    raw('{"id":"%s","res' % request["id"])
    os._exit(0)


@beast
def closes_stdout(_request):
    os.close(1)
    time.sleep(60)


@beast
def hangs(_request):
    time.sleep(60)


@beast
def hangs_in_the_middle(request):
    event(request, "started", process_id="1")
    time.sleep(60)


@beast
def ignores_term(request):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hangs(request)


@beast
def answers_late(request):
    time.sleep(1)
    go_on(request)


@beast
def leaves_a_child_with_stdout(_request):
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)


@beast
def answers_and_leaves_a_child(request):
    go_on(request)
    leaves_a_child_with_stdout(request)


@beast
def leaves_in_the_middle_with_a_child(request):
    event(request, "started", process_id="1")
    leaves_a_child_with_stdout(request)


@beast
def events_for_ever(request):
    while True:
        event(request, "stdout", data_base64=b64(b"x" * 1000))


@beast
def floods_stderr(request):
    for _ in range(2000):
        os.write(2, b"oops " * 1000 + b"\n")
    go_on(request)


@beast
def floods_stderr_in_one_line(request):
    os.write(2, b"\0\xff" * 500000)
    go_on(request)


@beast
def closes_stderr(request):
    os.close(2)
    go_on(request)


@beast
def leaves_after_the_answer(request):
    go_on(request)
    os._exit(0)


@beast
def stops_reading(request):
    go_on(request)
    time.sleep(60)


def take_beast(method):
    try:
        with open(ARMED, encoding="utf-8") as file:
            name, _, at = file.read().partition(" ")
    except FileNotFoundError:
        return None
    if at != method:
        return None
    os.unlink(ARMED)
    return BEASTS[name]


def serve():
    while True:
        text = sys.stdin.readline()
        if not text:
            return
        request = json.loads(text)
        fn = take_beast(request["method"])
        if fn:
            fn(request)
        else:
            good.answer(request)


if __name__ == "__main__":
    serve()
