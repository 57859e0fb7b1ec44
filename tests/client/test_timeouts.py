"""Time limits around a block of code."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from fairlane import InvalidOption, timeout
from fairlane.errors import AttemptInterrupted


def spin() -> None:
    while True:
        pass


@pytest.mark.requirement("L9")
def test_a_block_of_a_plain_function_is_interrupted() -> None:
    with pytest.raises(TimeoutError, match=r"the block took longer than its 0\.05 s"), timeout(0.05):
        spin()
    with timeout(timedelta(seconds=60)):
        pass


@pytest.mark.requirement("L9")
def test_a_call_that_blocks_ends_before_the_block_is_interrupted() -> None:
    """As the guide says: the read from a socket returns, and then the limit is kept."""
    here, there = socket.socketpair()
    with here, there:
        answer = threading.Timer(0.3, there.send, (b"late",))
        answer.start()
        with pytest.raises(TimeoutError, match=r"the block took longer than its 0\.02 s"), timeout(0.02):
            spin() if here.recv(4) else None
        answer.join()
        here.setblocking(False)
        with pytest.raises(BlockingIOError):
            here.recv(1)


@pytest.mark.requirement("L9")
def test_the_same_read_in_a_coroutine_ends_at_the_limit() -> None:
    async def read() -> None:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            async with timeout(0.02):
                await asyncio.get_running_loop().sock_recv(here, 1)

    with pytest.raises(TimeoutError, match="the block took longer"):
        asyncio.run(read())


@pytest.mark.requirement("L9")
def test_a_block_of_a_coroutine_is_interrupted() -> None:
    async def wait() -> str:
        async with timeout(60):
            pass
        try:
            async with timeout(0.02):
                await asyncio.Event().wait()
        except TimeoutError as error:
            return str(error)
        return "not interrupted"

    assert asyncio.run(wait()) == "the block took longer than its 0.02 s"


@pytest.mark.requirement("L9")
def test_a_block_is_interrupted_in_any_thread_though_it_catches_every_exception() -> None:
    ended: list[BaseException] = []

    def work() -> None:
        try:
            with timeout(0.05):
                while True:
                    with contextlib.suppress(Exception):
                        spin()
        except TimeoutError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert len(ended) == 1


def test_the_shorter_of_nested_limits_ends_its_own_block_only() -> None:
    reached: list[str] = []
    with timeout(60):
        with pytest.raises(TimeoutError, match=r"0\.02"), timeout(0.02):
            spin()
        reached.append("behind the inner block")
    with pytest.raises(TimeoutError, match=r"0\.02"), timeout(0.02), timeout(60):
        spin()
    assert reached == ["behind the inner block"]


def test_an_error_of_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), timeout(60):
        raise ZeroDivisionError

    async def fail() -> None:
        async with timeout(60):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())


def test_no_interruption_comes_after_its_block() -> None:
    late = 0
    for _ in range(300):
        try:
            with timeout(0.001):
                for _ in range(2_000):
                    pass
        except (TimeoutError, AttemptInterrupted):
            late += 1
        for _ in range(50):
            pass
    assert 0 <= late <= 300


async def _sync_block_in_a_coroutine() -> None:
    with timeout(1):
        pass


def _twice_at_once() -> None:
    limit = timeout(1)
    with limit, limit:
        pass


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda: timeout(0), "timeout"),
        (lambda: timeout("5"), "timeout"),  # type: ignore[arg-type]
        (lambda: asyncio.run(_sync_block_in_a_coroutine()), "async with"),
        (_twice_at_once, "of its own"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(use: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        use()
