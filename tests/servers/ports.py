"""Free ports for test servers, below the range the system hands to outgoing connections."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, LAST = 20_000, 32_000
_steps = itertools.count()


def free_port() -> int:
    """A port of 127.0.0.1 nobody listens on now. Another process may still be quicker: be ready to ask again.

    A server that is stopped and started again wants its port back; one from the system's own range could by then
    be the near end of somebody's connection.
    """
    size = LAST - FIRST
    for _ in range(size):
        port = FIRST + (os.getpid() * 37 + next(_steps)) % size
        with socket.socket() as probe:
            # As the servers do: a closed connection of the last server still in TIME_WAIT is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"every port from {FIRST} to {LAST} of 127.0.0.1 is taken")
