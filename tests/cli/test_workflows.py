"""`fairlane workflows`: the graph as a tree with states, and acts on the whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairlane import Fairlane, NonRetryable
from fairlane.cli.main import cli
from fairlane.testing import run_due

pytestmark = pytest.mark.requirement("L18")


def asked(url: str, *args: str) -> Result:
    found = CliRunner().invoke(cli, ["workflows", *args, "--url", url], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found


@pytest.fixture
def shop(tmp_path: Path) -> tuple[str, str]:
    """A store with one workflow, blocked by a dead node; its URL and the workflow's id."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with Fairlane(url) as app:

        @app.task(max_attempts=1)
        def step(n: int) -> int:
            if n == 2:
                raise NonRetryable("no such user")
            return n

        flow = app.workflow("onboard")
        first = flow.add(step.bind(1))
        flow.add(step.bind(2), after=[first])
        third = flow.add(step.bind(3), after=[first])
        flow.add(step.bind(4), after=[third, first], name="last")
        flow.add(step.bind(5), after=[flow.add(step.bind(2), name="bad")], name="stuck")
        handle = flow.enqueue()
        run_due(app)
    return url, str(handle.id)


def test_the_list_and_the_tree(shop: tuple[str, str]) -> None:
    url, workflow = shop
    listed = json.loads(asked(url, "list", "--json").stdout)
    assert [(one["id"], one["status"]) for one in listed["workflows"]] == [(workflow, "blocked")]
    for part in ("1", workflow.rpartition("-")[2], workflow[:-4]):
        assert asked(url, "show", part).stdout.split()[:2] == ["id", workflow]
    with pytest.raises(SystemExit, match="3"):
        asked(url, "show", "7")
    shown = asked(url, "show", workflow).stdout
    assert "onboard" in shown
    assert "waits for" in shown
    tree = shown[shown.index("\n\n") :].strip().splitlines()
    assert tree[0].split() == ["step", "completed"]
    assert "  step-2  dead: no such user" in tree
    assert "    last  completed, also after step" in tree or "  last  completed, also after step-3" in tree
    assert "  stuck  waiting" in tree
    assert json.loads(asked(url, "show", workflow, "--json").stdout)["parents"]["stuck"] == ["bad"]


def test_cancel_and_retry(shop: tuple[str, str]) -> None:
    url, workflow = shop
    assert "failed" in asked(url, "cancel", workflow, "--by", "ada").stdout
    assert "running" in asked(url, "retry", workflow, "--by", "ada", "--from", "bad").stdout
