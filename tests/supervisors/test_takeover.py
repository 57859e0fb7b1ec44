"""Taking over the database of a team that has the document's Go worker."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from fairlane import Fairlane
from fairlane.cli.main import cli
from tests.supervisors.go_team import GoTeam, go_team

__all__ = ["go_team"]
pytestmark = pytest.mark.requirement("S1", "S3")

DONE, CONFLICT = 0, 4


def fairlane(team: GoTeam, *words: str) -> Result:
    return CliRunner().invoke(cli, [*words, "--url", team.dsn])


def open_tasks(team: GoTeam) -> list[Any]:
    return team.ask(
        "select task_type, payload, scheduled_at from queues.task t "
        "where not exists (select from queues.task_completed c where c.task_id = t.task_id) order by task_id"
    )


def test_open_tasks_go_on_at_their_time_and_history_stays_readable(go_team: GoTeam) -> None:
    go_team.kickoff("ann@example.com", "bob@example.com")
    for _ in range(2):
        task = go_team.lease()
        assert task is not None
        go_team.process(task)
    go_team.do("select queues.fail_task(1, 'mailbox full')")
    before = open_tasks(go_team)
    assert [kind for kind, _, _ in before] == ["email", "db_function", "email", "db_function"]
    last = go_team.one("select max(task_id) from queues.task")

    result = fairlane(go_team, "supervisors", "take-over")
    assert (result.exit_code, result.stdout) == (DONE, "moved 4 open tasks\n")
    assert open_tasks(go_team) == before
    assert go_team.one("select min(task_id) from queues.task") > last, "an old number names no new task"
    assert go_team.ask("select task_id, error_message from queues_before.error") == [(1, "mailbox full")]
    assert go_team.one("select count(*) from queues_before.task_lease") == 2
    assert go_team.one("select internal.mask('ann@example.com')") == "a***", "what else is in internal stays there"
    moved = go_team.ask(
        "select m.task_id, t.task_type from queues_before.moved m join queues.task t on t.task_id = m.new_task_id order by 1"
    )
    assert [kind for _, kind in moved] == ["email", "db_function", "email", "db_function"]

    again = fairlane(go_team, "supervisors", "take-over")
    assert (again.exit_code, again.stdout) == (DONE, "nothing to do: the supervisors are installed already\n")
    assert open_tasks(go_team) == before
    go_team.kickoff("cy@example.com")
    assert len(open_tasks(go_team)) == 5, "the team's own functions enqueue where the tasks are now"
    assert fairlane(go_team, "migrate", "up").exit_code == DONE


def test_nothing_is_taken_over_while_the_other_worker_holds_a_task(go_team: GoTeam) -> None:
    go_team.kickoff("ann@example.com")
    task = go_team.lease()
    assert task is not None
    result = fairlane(go_team, "supervisors", "take-over")
    assert result.exit_code == CONFLICT
    assert "the worker that is there holds tasks (1) until" in result.output
    assert "Stop it and run this again" in result.output
    assert go_team.one("select to_regnamespace('queues_before') is null") is True
    go_team.process(task)
    assert fairlane(go_team, "supervisors", "take-over").exit_code == DONE
    assert len(open_tasks(go_team)) == 2


def test_no_function_of_the_public_schema_runs_as_the_one_who_takes_over(go_team: GoTeam) -> None:
    """One that fits the type of an argument better goes before the server's own, where `public` is looked in."""
    go_team.kickoff("ann@example.com")
    assert go_team.lease() is not None
    go_team.do(TRAP)
    assert fairlane(go_team, "supervisors", "take-over").exit_code == CONFLICT
    assert go_team.one("select is_called from public.ran") is False


TRAP = """
create sequence public.ran;
create function public.run(bigint, bigint) returns bigint language sql as $$ select nextval('public.ran') $$;
create aggregate public.count (bigint) (sfunc = public.run, stype = bigint, initcond = 0);
"""


def test_the_check_before_and_after_says_what_is_to_be_done_about_the_teams_functions_alone(go_team: GoTeam) -> None:
    for command in ("check", "list", "errors"):
        assert "fairlane supervisors take-over" in fairlane(go_team, "supervisors", command).output
    assert fairlane(go_team, "supervisors", "take-over").exit_code == DONE
    findings = json.loads(fairlane(go_team, "supervisors", "check", "--json").stdout)["findings"]
    assert {found["function"].partition(".")[0] for found in findings} == {"comms"}


def test_views_over_the_old_queue_are_listed(go_team: GoTeam) -> None:
    """They are bound to its tables, and would show its last day for ever."""
    go_team.do("create view comms.open as select task_id from queues.task")
    done = fairlane(go_team, "supervisors", "take-over")
    assert "create the view comms.open again" in done.output
    go_team.do("create or replace view comms.open as select task_id from queues.task")
    go_team.kickoff("ann@example.com")
    assert go_team.one("select count(*) from comms.open") == 1


def test_how_many_have_stopped_is_unknown_where_no_table_says_so(go_team: GoTeam) -> None:
    """The document's processes have no such table: 0 would say that none has stopped."""
    go_team.kickoff("ann@example.com")
    assert fairlane(go_team, "supervisors", "take-over").exit_code == DONE
    listed = fairlane(go_team, "supervisors", "list", "--json")
    [counts] = json.loads(listed.stdout)["processes"]
    assert (counts["process"], counts["open"], counts["succeeded"], counts["stopped"]) == (
        "comms.send_email",
        1,
        0,
        None,
    )
    assert re.search(r"comms\.send_email +1 +0 {10,}0", fairlane(go_team, "supervisors", "list").stdout)


def test_a_migration_names_the_way_out_and_changes_nothing(go_team: GoTeam) -> None:
    result = fairlane(go_team, "migrate", "up", "--with", "supervisors")
    assert result.exit_code == CONFLICT
    assert "fairlane supervisors take-over" in result.output
    go_team.kickoff("ann@example.com")
    assert go_team.lease() is not None


def test_a_dry_run_says_what_would_move_and_undoes_it(go_team: GoTeam) -> None:
    go_team.kickoff("ann@example.com")
    assert fairlane(go_team, "migrate", "up").exit_code == DONE
    result = fairlane(go_team, "supervisors", "take-over", "--dry-run", "--json")
    assert json.loads(result.stdout) == {"dry_run": True, "installed": True, "moved": 1, "views": []}
    assert go_team.one("select to_regnamespace('queues_before') is null") is True
    assert go_team.lease() is not None


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        ("drop table queues.task_completed", "there is nothing to take over"),
        ("create schema queues_before", "; Rename it"),
        (
            "create function comms.later(_payload jsonb) returns void begin atomic select queues.enqueue('email', _payload); end",
            "bound to the old queue: comms.later(jsonb)",
        ),
        (
            "create function comms.open() returns bigint begin atomic select count(*) from queues.task; end",
            "bound to the old queue: comms.open()",
        ),
        (
            "create table comms.note (task_id bigint references queues.task)",
            "alter table comms.note drop constraint note_task_id_fkey;",
        ),
        (
            (
                "create type queues.kind as enum ('email');"
                "create function comms.later(_payload jsonb) returns void language sql as "
                "$$ select queues.enqueue(('email'::queues.kind)::text, _payload) $$"
            ),
            "comms.later(jsonb) names queues.kind; Create them without it",
        ),
        ("update queues.task set scheduled_at = 'infinity'", "expected an instant of the years 2 to 9998"),
    ],
)
def test_what_cannot_be_taken_over_whole_is_left_as_it_is(go_team: GoTeam, prepare: str, says: str) -> None:
    go_team.kickoff("ann@example.com")
    go_team.do(prepare)
    result = fairlane(go_team, "supervisors", "take-over")
    assert result.exit_code != DONE
    assert says in result.output
    assert go_team.one("select count(*) from pg_class where oid = 'queues.task'::regclass and relkind = 'r'") == 1


def test_who_could_enqueue_and_who_owns_functions_of_the_worker_still_may(go_team: GoTeam) -> None:
    go_team.do("create role go_app; create role go_owner; grant usage on schema queues to go_app, go_owner")
    go_team.do(
        "revoke all on function queues.enqueue from public; grant execute on function queues.enqueue to go_app, go_owner"
    )
    go_team.do("grant usage on schema comms to go_owner; grant all on all tables in schema comms to go_owner")
    go_team.do(
        "alter function comms.kickoff_send_email owner to go_owner; grant all on all sequences in schema comms to go_owner"
    )
    try:
        assert fairlane(go_team, "supervisors", "take-over").exit_code == DONE
        go_team.kickoff("ann@example.com")
        go_team.do("set role go_app; select queues.enqueue('email', '{}')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            go_team.do("select * from queues.task")
        go_team.do("reset role")
        with go_team.worker() as worker, pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.execute("select queues.enqueue('email', '{}')")
        assert len(open_tasks(go_team)) == 2
    finally:
        go_team.do("reset role; drop owned by go_app, go_owner cascade; drop role go_app, go_owner")


def test_a_go_worker_that_starts_again_goes_on_with_the_tasks_of_fairlane(go_team: GoTeam) -> None:
    go_team.kickoff("ann@example.com")
    assert fairlane(go_team, "supervisors", "take-over").exit_code == DONE
    with pytest.raises(psycopg.errors.NoDataFound, match="there is no task 1"):
        go_team.do("select queues.complete_task(1)")  # it was asleep since before, and names an old task
    go_team.do("set session authorization worker_service_user")
    for _ in range(2):
        task = go_team.lease()
        assert task is not None
        sent = go_team.process(task)
    go_team.do("reset session authorization")
    assert sent == "ann@example.com"
    assert go_team.one("select comms.has_send_email_succeeded_attempt(1)") is True
    with Fairlane(go_team.dsn) as app:
        assert len(app.jobs.list().jobs) == 3
