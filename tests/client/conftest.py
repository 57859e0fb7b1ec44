"""An application over each store that needs no server, with time in the test's hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.core.chance import FixedChance


class MovingPause:
    """Waiting moves the clock; `before` says what happens meanwhile."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.pauses: list[float] = []
        self.before: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._clock.advance(seconds)
        self.before()

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pause(clock: FakeClock) -> MovingPause:
    return MovingPause(clock)


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the machine that runs the tests reaches them."""
    monkeypatch.chdir(tmp_path)
    for variable in ("FAIRLANE_URL", "FAIRLANE_CONFIG", "USE_REDIS_QUEUE", "REDIS_URL", "REDIS_HEALTH_CHECK_TIMEOUT"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def make_app(url: str, clock: FakeClock, pause: MovingPause) -> Iterator[Callable[..., Fairlane]]:
    made: list[Fairlane] = []

    def make(**given: object) -> Fairlane:
        defaults: dict[str, object] = {
            "clock": clock,
            "sleeper": pause,
            "chance": FixedChance(len(made)),
            "profile": "development",
        }
        app = Fairlane(url, **{**defaults, **given})  # type: ignore[arg-type]
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Fairlane]) -> Fairlane:
    return make_app()
