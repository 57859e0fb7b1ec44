"""`fairlane healthcheck`: well is 0, a store out of reach 69, anything else that is wrong 1."""

from __future__ import annotations

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Run, Scene
from tests.servers.postgres import shared_server


@contextmanager
def probe(status: int, text: str) -> Iterator[tuple[int, list[str]]]:
    """Something that answers as a worker's probe does: its port, and what it was asked."""
    paths: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port, paths
        server.shutdown()
        thread.join()


@contextmanager
def nobody() -> Iterator[int]:
    """A port that is taken but where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_store_that_answers_is_well(run: Run, scene: Scene) -> None:
    before = scene.everything()
    result = run("healthcheck", "--url", scene.url)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("ok: sqlite answers")
    assert json.loads(run("healthcheck", "--url", scene.url, "--json").stdout)["ok"] is True
    assert scene.everything() == before


def test_a_store_that_is_not_there_is_out_of_reach_and_not_made(run: Run, url: str, tmp_path: Path) -> None:
    assert run("healthcheck", "--url", url).exit_code == 69
    assert list(tmp_path.iterdir()) == []
    with nobody() as port:
        result = run("healthcheck", "--url", f"postgresql://fairlane@127.0.0.1:{port}/fairlane")
    assert (result.exit_code, result.stdout) == (69, "")


def test_a_schema_that_is_too_old_is_a_failure_with_the_remedy(run: Run) -> None:
    url = shared_server().new_database("healthcheck_cli")
    result = run("healthcheck", "--url", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "fairlane migrate up" in result.stderr
    run("migrate", "up", "--url", url)
    assert run("healthcheck", "--url", url).exit_code == 0


def test_a_probe_decides_alone_whatever_the_store_is(run: Run) -> None:
    with probe(200, "ok\n") as (port, paths):
        assert run("healthcheck", "--probe-port", port, "--app", "no.such:app").exit_code == 0
        assert run("healthcheck", env={"FAIRLANE_WORKER_PROBE_PORT": str(port)}).exit_code == 0
        assert run("healthcheck", "--probe-port", port, "--live").exit_code == 0
    assert paths == ["/readyz", "/readyz", "/livez"]


def test_a_probe_that_says_no_is_quoted(command: Command) -> None:
    with probe(503, "worker 1: still starting\n") as (port, _):
        result = command("healthcheck", "--probe-port", port)
    assert (result.returncode, result.stdout) == (1, "")
    assert "503: worker 1: still starting" in result.stderr
    assert result.stderr.count("\n") == 1


def test_nobody_behind_the_port_is_a_failure(run: Run) -> None:
    with nobody() as port:
        result = run("healthcheck", "--probe-port", port)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not answer" in result.stderr


@pytest.mark.parametrize("mistake", [("--live",), ("--probe-port", 0), ("--probe-port", 65_536)])
def test_questions_that_make_no_sense_are_usage_errors(run: Run, mistake: tuple[object, ...]) -> None:
    assert run("healthcheck", *mistake).exit_code == 2
