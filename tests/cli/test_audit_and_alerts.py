"""`fairlane audit verify` and `fairlane alerts`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.core.audit_chain import seal
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Alert, ReadUnsealed, Renew, SaveAlerts, SealAudit
from tests.cli.conftest import Run


@pytest.fixture
def acted(url: str) -> str:
    """Five acts, four of them sealed."""
    with Fairlane(url) as app:
        for number in range(4):
            app.queues.pause(f"bulk{number}", by="ada")
        to_seal = app.runtime.access.run(ReadUnsealed())
        app.runtime.access.run(SealAudit(links=seal(to_seal.last, to_seal.records)))
        app.queues.resume("bulk0", by="ada")
    return url


def tamper(tmp_path: Path, *statements: str) -> None:
    """As somebody would who has the file and knows the triggers."""
    with sqlite3.connect(tmp_path / "jobs.db") as db:
        for [trigger] in db.execute(
            "select name from sqlite_schema where type = 'trigger' and name like '%audit%'"
        ).fetchall():
            db.execute(f"drop trigger {trigger}")
        for statement in statements:
            assert db.execute(statement).rowcount > 0
    db.close()


def test_a_whole_chain_is_told_with_its_last_link(acted: str, run: Run, answer: Callable[..., Any]) -> None:
    verified = run("audit", "verify", "--url", acted)
    assert verified.exit_code == 0
    assert verified.stdout.startswith("whole: 4 sealed records\nlast good link: 4:")
    assert "1 not sealed yet" in verified.stderr
    kept = verified.stdout.split()[-1]
    assert run("audit", "verify", "--kept", kept, "--url", acted).exit_code == 0
    told = answer("audit", "verify", "--url", acted)
    assert (told["links"], told["broken"], told["unsealed"]) == (4, None, 1)
    assert f"{told['last']['n']}:{told['last']['hash']}" == kept


def test_the_first_record_that_was_changed_is_named(acted: str, run: Run, tmp_path: Path) -> None:
    tamper(tmp_path, "update fairlane_audit set by = 'nobody' where id >= 3")
    verified = run("audit", "verify", "--url", acted)
    assert verified.exit_code == 1
    assert "link 3 (audit record 3): the audit record is not the one that was sealed" in verified.stderr
    assert verified.stdout.startswith("last good link: 2:")


def test_a_chain_cut_short_is_found_by_a_link_kept_elsewhere(acted: str, run: Run, tmp_path: Path) -> None:
    kept = run("audit", "verify", "--url", acted).stdout.split()[-1]
    tamper(tmp_path, "delete from fairlane_audit where id >= 4", "delete from fairlane_audit_seal where n >= 4")
    assert run("audit", "verify", "--url", acted).exit_code == 0, "it cannot be seen from within"
    cut = run("audit", "verify", "--kept", kept, "--url", acted)
    assert (cut.exit_code, "link 4: the link that was kept is not there" in cut.stderr) == (1, True)
    other = run("audit", "verify", "--kept", "2:" + "0" * 64, "--url", acted)
    assert (other.exit_code, "the chain was made anew" in other.stderr) == (1, True)


def test_a_kept_link_is_written_as_it_was_printed(acted: str, run: Run) -> None:
    odd = run("audit", "verify", "--kept", "4", "--url", acted)
    assert (odd.exit_code, "NUMBER:HASH" in odd.stderr) == (2, True)


@pytest.mark.requirement("W12")
def test_a_record_neither_sealed_nor_waiting_is_found(acted: str, run: Run, tmp_path: Path) -> None:
    tamper(tmp_path, "delete from fairlane_audit_unsealed")
    verified = run("audit", "verify", "--url", acted)
    assert verified.exit_code == 1
    assert "audit record 5: it is neither sealed nor waiting for it" in verified.stderr


def test_nothing_sealed_where_no_worker_runs_is_no_whole_chain(url: str, run: Run, answer: Callable[..., Any]) -> None:
    with Fairlane(url) as app:
        app.queues.pause("bulk", by="ada")
        verified = run("audit", "verify", "--url", url)
        assert verified.exit_code == 1
        assert "nothing is sealed, 1 waiting: no worker runs" in verified.stderr
        worker = WorkerId(app.runtime.new_job_id())
        app.runtime.access.run(Renew(worker=worker, lease_s=3600))
        assert run("audit", "verify", "--url", url).exit_code == 0, "it will be sealed any moment"
        assert answer("audit", "verify", "--url", url)["unsealed"] == 1


def test_a_store_nobody_acted_on_is_whole(url: str, run: Run) -> None:
    run("migrate", "up", "--url", url)
    assert run("audit", "verify", "--url", url).stdout == "whole: 0 sealed records\n"


@pytest.mark.requirement("I12")
def test_alerts_are_listed_and_silenced_under_a_name(url: str, run: Run, answer: Callable[..., Any]) -> None:
    with Fairlane(url) as app:
        now = app.runtime.clock.now()
        facts: dict[str, Any] = {
            "since": now,
            "resolved_at": None,
            "value": 1234.0,
            "severity": "warning",
            "version": 1,
        }
        app.runtime.access.run(
            SaveAlerts(
                alerts=(
                    Alert(rule="queue_backlog", about="bulk", state="firing", fired_at=now, **facts),
                    Alert(rule="oldest_pending", about="", state="resolved", fired_at=now, **facts),
                )
            )
        )
    listed = run("alerts", "list", "--url", url).stdout.splitlines()
    assert [line.split()[:5] for line in listed] == [
        ["RULE", "ABOUT", "STATE", "SEVERITY", "VALUE"],
        ["queue_backlog", "bulk", "firing", "warning", "1234"],
    ]
    assert len(run("alerts", "list", "--all", "--url", url).stdout.splitlines()) == 3
    silenced = run("alerts", "silence", "queue_backlog", "--for", "2h", "--notes", "import", "--url", url)
    assert silenced.stdout.startswith("queue_backlog is silenced until 2")
    assert "by olga: import" in run("alerts", "list", "--url", url).stderr
    [silence] = answer("alerts", "list", "--url", url)["silences"]
    assert (silence["rule"], silence["by"]) == ("queue_backlog", "olga")
    assert (
        run("alerts", "silence", "queue_backlog", "--for", "0", "--url", url).stdout
        == "queue_backlog is not silenced\n"
    )
    acts = [record["action"] for record in answer("audit", "list", "--url", url)["records"]]
    assert acts == ["alert_silence", "alert_silence"]


def test_a_silence_is_not_for_ever(url: str, run: Run) -> None:
    run("migrate", "up", "--url", url)
    for wrong in (("queue_backlog", "--for", "60d"), ("no spaces",)):
        refused = run("alerts", "silence", *wrong, "--url", url)
        assert (refused.exit_code, refused.stdout) == (2, "")


def test_without_alerts_a_hint_is_given(url: str, run: Run) -> None:
    run("migrate", "up", "--url", url)
    listed = run("alerts", "list", "--url", url)
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "no alert is firing" in listed.stderr


def test_a_rule_that_there_is_not_cannot_be_silenced(url: str, run: Run, answer: Callable[..., Any]) -> None:
    run("migrate", "up", "--url", url)
    refused = run("alerts", "silence", "queue_backlock", "--url", url)
    assert (refused.exit_code, 'Nearest: "queue_backlog"' in refused.stderr) == (2, True)
    assert answer("alerts", "list", "--url", url)["silences"] == []


def test_an_unreachable_store_cannot_be_silenced_for_silences_are_kept_in_it(
    url: str, run: Run, answer: Callable[..., Any]
) -> None:
    run("migrate", "up", "--url", url)
    refused = run("alerts", "silence", "store_unreachable", "--url", url)
    assert (refused.exit_code, refused.stdout, "enabled = false" in refused.stderr) == (2, "", True)
    assert answer("alerts", "list", "--url", url)["silences"] == []
