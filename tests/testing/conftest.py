"""A shop whose store is not there: only tests can run it."""

from __future__ import annotations

import pytest

from fairlane import Fairlane, Retry
from tests.support.stores import ground

__all__ = ["ground"]


class Shop:
    def __init__(self) -> None:
        self.app = app = Fairlane("postgresql://nowhere.invalid/none", profile="production")
        self.seen: list[object] = []

        @app.task(name="shop.welcome", queue="mail", retry=Retry(max_attempts=3, delays=(60.0,)))
        def welcome(user_id: int, greeting: str = "hello", fails: int = 0) -> str:
            from fairlane import current_job

            self.seen.append(current_job().attempt)
            if current_job().attempt <= fails:
                raise ConnectionError("unlucky")
            return f"{greeting} {user_id}"

        @app.task(name="shop.sign_up")
        async def sign_up(user_id: int, fails: int = 0) -> int:
            await welcome.aenqueue(user_id, fails=fails)
            return user_id

        self.welcome, self.sign_up = welcome, sign_up


@pytest.fixture
def shop() -> Shop:
    return Shop()
