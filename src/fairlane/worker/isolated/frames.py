"""Frames between a worker and its children: four bytes of length, then JSON."""

from __future__ import annotations

import asyncio
import struct
from typing import BinaryIO

_LENGTH = struct.Struct(">I")


def write_frame(stream: BinaryIO, body: bytes) -> None:
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None when the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


async def aread_frame(stream: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        return await stream.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
