"""Processes of races, forked from one that has imported what they need: `python -m tests.races.racer`.

On stdin come a number and a socket for each; over that come stores to open and stories, and go answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import IO

from tests.races.stories import STORIES
from tests.support.stores import open_at


def main() -> None:
    asked = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        number, files, _, _ = socket.recv_fds(asked, 16, 1)
        if not number:
            return
        if os.fork() == 0:
            break
        os.close(files[0])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with socket.socket(fileno=files[0]) as talk, talk.makefile("rw") as stream:
        race(int(number), stream)


def race(number: int, stream: IO[str]) -> None:
    with contextlib.ExitStack() as opened:
        for line in stream:
            call = json.loads(line)
            if "open" in call:
                opened.close()
                store = open_at(*call["open"])
                opened.callback(store.close)
                answer = "ready"
            else:
                answer = STORIES[call["story"]](store, number, **call["params"])
            stream.write(json.dumps(answer) + "\n")
            stream.flush()


if __name__ == "__main__":
    main()
