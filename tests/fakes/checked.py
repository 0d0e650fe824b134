#!/usr/bin/python3
"""Runs a provider of sandbox.v1 and holds each message against the protocol's
schema, both ways: what a client sends and what it is answered. For tests.

usage: checked.py PROGRAM ARGUMENT...

CHECKED_LOG    a file that gets a line for each message: the method, an event's
               type, or `bad` and what is wrong
"""
import json
import os
import subprocess
import sys
import threading

sys.dont_write_bytecode = True  # The sources are not ours to add to.

from sandbox_schema import Bad, check_answer, check_request

ASKED = {}  # Methods by the ids of their requests.


def note(words):
    fd = os.open(os.environ["CHECKED_LOG"],
                 os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, words.encode(errors="replace") + b"\n")
    os.close(fd)


def parse(line):
    return json.loads(line.decode("utf-8", "surrogateescape"))


def see_request(line):
    request = parse(line)
    check_request(request)
    ASKED[request["id"]] = request["method"]
    note(request["method"])


def see_answer(line):
    message = parse(line)
    check_answer(ASKED[message["id"]], message)
    if "event" in message:
        note(message["event"]["type"])


def watch(see, line):
    try:
        see(line)
    except (Bad, ValueError, KeyError) as error:
        note(f"bad {error!r} {line[:300]!r}")


def pass_requests(to):
    for line in sys.stdin.buffer:
        watch(see_request, line)
        try:
            to.write(line)
            to.flush()
        except BrokenPipeError:
            return
    to.close()


def main():
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    threading.Thread(target=pass_requests, args=(process.stdin,),
                     daemon=True).start()
    for line in process.stdout:
        watch(see_answer, line)
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    os._exit(process.wait() & 255)


if __name__ == "__main__":
    main()
