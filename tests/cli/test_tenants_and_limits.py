"""`fairlane tenants`, `fairlane limits` and `fairlane jobs why`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.core.ops import AddTenants
from tests.cli.conftest import Run, Scene

Answer = Callable[..., Any]


@pytest.fixture
def known(scene: Scene) -> Scene:
    with Fairlane(scene.url) as app:
        app.runtime.store.run(AddTenants())
    return scene


def test_tenants_are_listed_with_what_waits_and_runs_of_theirs(known: Scene, run: Run, answer: Answer) -> None:
    rows = run("tenants", "list", "--url", known.url).stdout.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["acme", "globex"]
    page = answer("tenants", "list", "--url", known.url)
    assert [(t["name"], t["ready"], t["scheduled"]) for t in page["tenants"]] == [("acme", 0, 0), ("globex", 1, 1)]
    [one] = answer("tenants", "list", "--limit", 1, "--after", "acme", "--url", known.url)["tenants"]
    assert one["name"] == "globex"


def test_a_tenant_s_share_is_set_and_audited(known: Scene, run: Run, answer: Answer) -> None:
    shown = run("tenants", "set", "acme", "--weight", 3, "--tier", "gold", "--notes", "paid", "--url", known.url).stdout
    assert "weight     3\n" in shown
    assert "gold" in run("tenants", "show", "acme", "--url", known.url).stdout
    [record] = answer("audit", "list", "--url", known.url)["records"]
    assert (record["action"], record["by"], record["notes"]) == ("tenant_set", "olga", "paid")
    for mistake in (("--weight", 0), ("--weight", "much"), ()):
        assert run("tenants", "set", "acme", *mistake, "--url", known.url).exit_code == 2


def test_a_tenant_is_paused_resumed_and_drained(known: Scene, run: Run, answer: Answer) -> None:
    assert run("tenants", "pause", "globex", "--url", known.url).stdout == 'tenant "globex" is paused\n'
    assert answer("tenants", "show", "globex", "--url", known.url)["paused"] is True
    assert run("tenants", "resume", "globex", "--url", known.url).stdout == 'tenant "globex" is resumed\n'
    assert run("tenants", "resume", "globex", "--url", known.url).stdout == 'tenant "globex" was not paused\n'
    assert answer("tenants", "pause", "globex", "--url", known.url)["paused"] is True
    assert run("tenants", "drain", "acme", "--url", known.url).stdout == 'tenant "acme" is drained and stays paused\n'


def test_a_tenant_that_is_not_known_is_paused_with_the_nearest_name_on_stderr(known: Scene, run: Run) -> None:
    note = 'tenant "globx" has had no job and no setting yet. Nearest: "globex".'
    paused = run("tenants", "pause", "globx", "--url", known.url)
    assert (paused.exit_code, paused.stdout, paused.stderr) == (0, 'tenant "globx" is paused\n', f"{note}\n")
    assert run("tenants", "show", "globx", "--url", known.url).stderr == ""
    assert run("tenants", "resume", "globx", "--url", known.url).stdout == 'tenant "globx" is resumed\n'
    assert run("tenants", "show", "globx", "--url", known.url).stderr == f"{note} These are the defaults\n"
    run("tenants", "set", "globx", "--weight", "2", "--url", known.url)
    assert run("tenants", "pause", "globx", "--url", known.url).stderr == ""


@pytest.mark.requirement("I2", "I5")
def test_limits_are_set_listed_and_cleared(known: Scene, run: Run, answer: Answer) -> None:
    at = ("--url", known.url)
    assert run("limits", "list", *at).stderr == "no limit is set\n"
    run("limits", "set", "--tenant", "acme", "--queue", "default", "--waiting", 9, "--when-full", "reject", *at)
    run("limits", "set", "--queue", "bulk", "--rate", "10/s", *at)
    kept = answer("limits", "list", *at)["limits"]
    assert [(k["limit"]["kind"], k["limit"]["name"]) for k in kept] == [("queue", "bulk"), ("tenant", "acme")]
    listed = run("limits", "list", *at, env={"FAIRLANE_PROFILE": "isolation"}).stdout
    assert "10/s" in listed
    assert "every tenant" in listed
    assert run("limits", "clear", "--queue", "bulk", *at).stdout == "the limit is cleared\n"
    assert run("limits", "clear", "--queue", "bulk", *at).stdout == "no such limit was set\n"


def test_what_the_code_says_of_a_rate_and_of_full_queues_is_overruled(known: Scene, run: Run) -> None:
    at = ("--url", known.url)
    assert "no limit" in run("limits", "set", "--queue", "bulk", "--rate", "-1", *at).stdout
    assert "hold" in run("limits", "set", "--tenant", "acme", "--when-full", "hold", *at).stdout


@pytest.mark.parametrize("command", [["pause"], ["set", "--weight", 2], ["show"], ["drain"]])
def test_every_tenant_is_no_tenant(known: Scene, run: Run, command: list[object]) -> None:
    result = run("tenants", *command, "*", "--url", known.url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "every tenant" in result.stderr
    assert run("pauses", "--url", known.url).stdout == ""


def test_a_tier_nobody_has_is_not_taken_for_an_empty_store(known: Scene, run: Run) -> None:
    assert run("tenants", "list", "--tier", "silver", "--url", known.url).stderr == "no such tenant is known\n"


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--queue", "a"),
        ("--queue", "a", "--type", "b", "--running", 1),
        ("--queue", "a", "--rate", "fast"),
        ("--running", 3),
    ],
)
def test_a_limit_that_makes_no_sense_is_a_usage_error(known: Scene, run: Run, options: tuple[object, ...]) -> None:
    result = run("limits", "set", *options, "--url", known.url)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.requirement("I2", "I3")
def test_a_job_s_waiting_is_explained(known: Scene, run: Run, answer: Answer) -> None:
    at = ("--url", known.url)
    assert "no live worker serves queue" in run("jobs", "why", known.waiting, *at).stdout
    run("tenants", "pause", "globex", "--notes", "unpaid", *at)
    assert 'tenant "globex" is paused by olga: unpaid' in run("jobs", "why", known.waiting, *at).stdout
    assert "it failed and is tried again in" in run("jobs", "why", known.failed, *at).stdout
    assert "it does not wait: it completed" in run("jobs", "why", known.done, *at).stdout
    told = answer("jobs", "why", known.waiting, *at)
    assert (told["waiting"]["place"], told["waiting"]["ahead"]) == ("ready", 0)
    assert run("jobs", "why", known.waiting, "--tenant", "acme", *at).exit_code == 3
    assert run("jobs", "why", "nonsense", *at).exit_code == 2


@pytest.mark.parametrize("command", ["queues", "pauses"])
def test_what_only_lists_takes_the_word_list_too(known: Scene, run: Run, command: str) -> None:
    assert run(command, "list", "--url", known.url).output == run(command, "--url", known.url).output
    assert run(command, "lost", "--url", known.url).exit_code == 2


@pytest.mark.requirement("D24")
def test_keys_are_listed_limited_and_a_place_is_freed_by_hand(run: Run, made: str, answer: Answer) -> None:
    at = ("--url", made)
    assert run("limits", "list", "--keys", *at).stderr == "no job waits at a key\n"
    numbers = [
        answer("enqueue", "mail.send", "--key", key, "--tenant", "acme", *at)["job"]["seq"]
        for key in ("customer:42", "customer:42", "customer:42", "shop:7", "shop:7")
    ]
    with Fairlane(made) as app:
        assert app.jobs.claim(["default"], lease=600) is not None
    rows = run("limits", "list", "--keys", "--name", "customer", *at).stdout.splitlines()
    assert [row.split() for row in rows[1:]] == [["acme", "customer:42", "1", "1", "2", str(numbers[0])]]
    found = answer("limits", "list", "--keys", "--tenant", "acme", *at)["keys"]
    assert [(use["key"], use["waiting"], use["in_use"]) for use in found] == [("customer:42", 2, 1), ("shop:7", 1, 1)]
    assert f"job {numbers[0]} has its place" in run("jobs", "why", numbers[2], *at).stdout
    freed = run("jobs", "free-place", numbers[0], "--notes", "it hangs", *at)
    assert freed.stdout.endswith("mail.send  processing: its place at customer:42 is free\n")
    assert run("jobs", "free-place", numbers[0], *at).exit_code == 4
    kept = answer("limits", "set", "--key", "customer", "--running", 2, "--rate", "10/s", *at)["kept"]
    assert [(one["limit"]["kind"], one["limit"]["name"], one["limit"]["running"]) for one in kept] == [
        ("key", "customer", 2)
    ]
    assert "customer" in run("limits", "list", *at).stdout
    assert run("limits", "clear", "--key", "customer", *at).stdout == "the limit is cleared\n"
