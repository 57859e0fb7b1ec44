"""`fairlane top`: a live view in a real terminal, driven by keys; one reading elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.cli.loads import SOONEST_S, LoadReader
from tests.cli.conftest import Run, Scene
from tests.faults.eventually import eventually
from tests.servers.proxy import BLACKHOLE, Proxy
from tests.support.stores import Ground, ground
from tests.support.terminal import Terminal

__all__ = ["ground"]

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


@contextmanager
def working(url: str, *, failing: bool = False) -> Iterator[Fairlane]:
    """An application at work on the scene's store."""
    with Fairlane(url) as app:

        @app.task(name="mail.send")
        def send(to: int) -> str:
            if failing:
                raise ValueError("no such mailbox")
            return f"sent to {to}"

        for user in range(20):
            send.using(tenant="acme" if user % 4 else "globex").enqueue(to=user)
        with app.running():
            yield app


@contextmanager
def top(scene: Scene, tmp_path: Path, *args: str, **size: int) -> Iterator[Terminal]:
    with Terminal("fairlane", "top", "--url", scene.url, "-i", "200ms", *args, cwd=tmp_path, **size) as terminal:
        yield terminal


def test_it_draws_every_panel_and_follows_the_store_until_q(scene: Scene, tmp_path: Path) -> None:
    with Fairlane(scene.url) as app, top(scene, tmp_path) as terminal:
        frame = terminal.shows("1 ready", "1 later", "1 dead letter", "no worker serves default")
        for part in (" queues ", " tenants ", " lanes ", " failures ", "no worker is registered", "q quit"):
            assert part in frame
        assert "\x1b[?1049h" in terminal.raw  # a screen of its own
        assert "\x1b[1;7m fairlane top \x1b[0m" in terminal.raw  # what is marked ends where its words end
        assert "\x1b[1;7;36m queues \x1b[0m" in terminal.raw
        app.jobs.cancel(scene.waiting)
        terminal.shows("0 ready")
        with working(scene.url, failing=True):
            terminal.shows("ValueError: no such mailbox", "general", "mail.send")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.raw.endswith("\x1b[?1049l")  # the old screen again
        assert "Traceback" not in terminal.text


def test_rates_of_a_live_view_are_those_of_the_last_seconds(scene: Scene) -> None:
    with Fairlane(scene.url) as app:
        reader = LoadReader(app)
        reader.read(live=True)
        eventually(lambda: app.runtime.clock.monotonic() - reader.began_s > SOONEST_S)
        with working(scene.url) as at_work:
            send = at_work.tasks["mail.send"]

            def rates() -> tuple[float, float]:
                # A worker learns within a second that somebody watches.
                at_work.enqueue_many([send.using(tenant=name).bind(to=1) for name in ("acme", "acme", "globex")])
                found = {load.tenant: load.per_s for load in reader.read(live=True).tenants}
                return found.get("acme", 0.0), found.get("globex", 0.0)

            eventually(lambda: rates()[0] > rates()[1] > 0)
            assert 0 < reader.read("globex", live=True).per_s < reader.read(live=True).per_s


def test_keys_choose_panels_sort_filter_pause_and_help(scene: Scene, tmp_path: Path) -> None:
    with working(scene.url), top(scene, tmp_path) as terminal:
        terminal.shows("share▼", "acme", "globex")
        terminal.press("\ts")
        terminal.shows("ready▼")  # the next column of the tenants
        terminal.press(LEFT + "r")
        terminal.shows("ready▲")  # of the queues, reversed
        terminal.press("?")
        terminal.shows("show one tenant; an empty name shows all", lacks=" lanes ")
        terminal.press("\x1b")
        terminal.shows(" lanes ")
        terminal.press("t")
        terminal.shows("tenant: ▏")
        terminal.press("glob\x7fbex\r")
        terminal.shows("tenant globex", lacks="acme")
        terminal.press("/\r")
        terminal.shows("all tenants", "acme")
        terminal.press("p")
        terminal.shows("PAUSED")
        with Fairlane(scene.url) as app:
            app.queues.pause("default", by="olga")
        terminal.press(RIGHT + RIGHT + DOWN + UP)
        assert "(paused)" not in terminal.frame
        terminal.press(" ")
        terminal.shows("default (paused)", lacks="PAUSED")
        terminal.press("\x03")
        assert terminal.ended() == 0


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (40, 10), (200, 60)])
def test_no_line_is_wider_than_the_terminal(scene: Scene, tmp_path: Path, columns: int, lines: int) -> None:
    with working(scene.url), top(scene, tmp_path, columns=120, lines=40) as terminal:
        terminal.shows("acme")
        terminal.resize(columns, lines)

        def fits() -> bool:
            shown = terminal.shows(" fairlane top ").replace("\r", "").split("\n")
            terminal.reads_within(0.2, "\0")
            return max(map(len, shown)) == columns and len(shown) == lines

        eventually(fits)
        terminal.shows(" q quit")


def test_an_outage_is_shown_and_the_view_goes_on(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    away = tmp_path / "away.db"
    with top(scene, tmp_path) as terminal:
        terminal.shows("1 ready")
        file.rename(away)
        file.mkdir()
        terminal.shows("the next try follows", "1 ready")
        file.rmdir()
        away.rename(file)
        terminal.shows("1 ready", lacks="the next try follows")
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_keys_are_heard_and_q_ends_it_at_once_while_the_store_is_silent(
    ground: Ground, tmp_path: Path, kind: str
) -> None:
    """The reading thread waits for an answer that never comes."""
    if kind == "redis":
        server, url = ground.valkey, ground.valkey.url
    else:
        server, url = ground.server, ground.address(kind)
    with Proxy(server.port) as proxy:
        url = url.replace(f":{server.port}", f":{proxy.port}")
        with Terminal("fairlane", "top", "--url", url, "-i", "200ms", cwd=tmp_path) as terminal:
            terminal.shows("all tenants")
            proxy.plan = BLACKHOLE
            proxy.cut_all("silent")
            terminal.press("ttac\x7fcme")  # in one burst, and while nothing is drawn by itself
            assert terminal.reads_within(2.0, " tenant: tacme▏")
            terminal.press("\x1b")
            began_s = time.monotonic()
            terminal.press("q")
            assert terminal.ended() == 0
            assert time.monotonic() - began_s < 1.0
            assert terminal.raw.endswith("\x1b[?1049l")
            assert "Traceback" not in terminal.text


def test_without_a_terminal_it_prints_one_reading(
    run: Run, answer: Callable[..., Any], scene: Scene, tmp_path: Path
) -> None:
    said = run("top", "--url", scene.url).stdout
    assert said.startswith("all tenants  1 ready  0 running  1 later")
    assert "QUEUE" in said
    assert "\x1b" not in said
    loads = answer("top", "--url", scene.url, "--tenant", "globex")
    assert (loads["tenant"], loads["ready"], loads["scheduled"], loads["dead_letters"]) == ("globex", 1, 1, 0)
    assert [queue["queue"] for queue in loads["queues"]] == ["default"]
    with Terminal("fairlane", "top", "--once", "--url", scene.url, cwd=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "no worker is registered" in terminal.text


def test_an_interval_that_would_only_heat_the_machine_is_refused(run: Run, scene: Scene) -> None:
    result = run("top", "--url", scene.url, "-i", "10ms")
    assert (result.exit_code, "200ms or longer" in result.stderr) == (2, True)
