"""What goes where: data to stdout, the rest to stderr, colour only to a terminal that wants it, and nothing that could harm one."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Fairlane, Retry
from fairlane.testing import run_due
from tests.cli.conftest import Command, Run, Scene
from tests.support.terminal import Terminal

ESCAPE = "\x1b"


def on_a_terminal(*args: str, **env: str) -> str:
    """What the command writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", **env}
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlane", *args], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    said = b""
    try:
        while chunk := os.read(ours, 65_536):
            said += chunk
    except OSError:  # the other end is closed: the command has ended
        pass
    _, errors = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, errors
    return said.decode()


def test_a_terminal_gets_colour_and_whole_ids(scene: Scene) -> None:
    said = on_a_terminal("jobs", "list", "--url", scene.url)
    assert ESCAPE in said
    for job in (scene.done, scene.dead, scene.failed, scene.waiting):
        assert job in said


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_none_gets_plain_text(scene: Scene, env: dict[str, str]) -> None:
    for words in (["jobs", "list"], ["jobs", "show", scene.dead], ["doctor"]):
        assert ESCAPE not in on_a_terminal(*words, "--url", scene.url, **env)


def test_a_narrow_terminal_gets_short_ids_and_fewer_columns_but_no_broken_word(scene: Scene, tmp_path: Path) -> None:
    with Terminal("fairlane", "jobs", "list", "--url", scene.url, cwd=tmp_path, columns=80) as terminal:
        assert terminal.ended() == 0
        lines = terminal.text.replace("\r", "").splitlines()
    with Fairlane(scene.url) as app:
        numbers = [str(job.seq) for job in app.jobs.list().jobs]
    assert [line.split()[0] for line in lines[1:5]] == numbers
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines[1:5]] == ["mail.send", "crm.sync", "billing.charge", "mail.send"]
    assert "left out: id" in terminal.text
    wide = on_a_terminal("jobs", "list", "--wide", "--url", scene.url, COLUMNS="80")
    assert scene.waiting in wide
    assert "priority" in wide


def test_a_part_of_an_id_is_accepted_where_it_names_one_job(run: Run, scene: Scene) -> None:
    short = scene.waiting.rpartition("-")[2]
    for part in (short, short[-8:], scene.waiting[:-2], scene.waiting.upper(), scene.waiting.replace("-", "")):
        assert f"id               {scene.waiting}" in run("jobs", "show", part, "--url", scene.url).stdout, part
    assert "globex" in run("jobs", "show", short, "--tenant", "globex", "--url", scene.url).stdout
    other = run("jobs", "show", short, "--tenant", "acme", "--url", scene.url)
    assert (other.exit_code, "give the id in full" in other.stderr) == (3, True)
    both = run("jobs", "cancel", scene.waiting[:6], "--url", scene.url)
    assert both.exit_code == 2
    assert all(job in both.stderr for job in (scene.done, scene.dead, scene.failed, scene.waiting))
    assert run("jobs", "why", short, "--url", scene.url).exit_code == 0
    assert "cancelled" in run("jobs", "cancel", short, "--url", scene.url).stdout


def test_a_number_names_a_job_however_old_it_is(run: Run, scene: Scene) -> None:
    with Fairlane(scene.url) as app:
        number = next(job.seq for job in app.jobs.list().jobs if str(job.id) == scene.waiting)
    shown = run("jobs", "show", number, "--url", scene.url)
    assert f"id               {scene.waiting}" in shown.stdout
    assert run("jobs", "show", number, "--tenant", "acme", "--url", scene.url).exit_code == 3
    assert run("jobs", "why", number, "--url", scene.url).exit_code == 0
    children = run("jobs", "list", "--parent", number, "--url", scene.url)
    assert (children.exit_code, "no job matches" in children.stderr) == (0, True)
    assert "cancelled" in run("jobs", "cancel", number, "--url", scene.url).stdout


LONG = "notifications.of_the_customer_portal.send_welcome_mail_to_everybody"
HEADS = (
    "number  type",
    "id  type",
    "id  tenant",
    "id  name",
    "id            name",
    "attempt  ",
    "fingerprint  ",
    "name  ",
    "kind  ",
    "at  ",
    "queue    pending",
    "of  ",
)
TENANT = "a-tenant-with-quite-a-long-name-of-its-own"


@pytest.fixture
def crowded(url: str, run: Run) -> str:
    """A store with long names everywhere."""
    with Fairlane(url) as app:

        @app.task(name=LONG, retry=Retry(max_attempts=1))
        def send(user: int) -> None:
            raise ConnectionError("the mail server of the customer portal did not answer for thirty seconds: " * 3)

        for user in range(3):
            send.using(tenant=TENANT, created_by="somebody").enqueue(user)
        run_due(app, limit=2)
    for words in (
        ["queues", "pause", "default", "--notes", "the provider is down until Tuesday, ask Olga before you resume it"],
        ["limits", "set", "--tenant", TENANT, "--running", "3"],
        ["tenants", "set", TENANT, "--weight", "3"],
        ["schedules", "add", "every-weekday-in-the-morning", LONG, "--cron", "0 7 * * mon-fri"],
        ["breakers", "open", "payments-of-the-customer-portal", "--notes", "maintenance"],
        ["tokens", "create", "deployments of the customer portal", "--role", "viewer"],
    ):
        ran = run(*words, "--url", url)
        assert ran.exit_code == 0, ran.stderr
    return url


@pytest.mark.parametrize(
    "words",
    [
        *("jobs list", "jobs show 1", "dlq list", "dlq groups", "dlq show 1", "queues", "limits list", "tenants list"),
        *("schedules list", "pauses", "breakers list", "tokens list", "audit list", "workers list", "alerts list"),
    ],
)
def test_every_listing_fits_eighty_columns_without_a_broken_word(crowded: str, tmp_path: Path, words: str) -> None:
    with Terminal("fairlane", *words.split(), "--url", crowded, cwd=tmp_path, columns=80) as terminal:
        assert terminal.ended() == 0, terminal.text
        lines = terminal.text.replace("\r", "").splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith(HEADS)]
    assert heads or words in ("workers list", "alerts list"), terminal.text
    for head in heads:
        table = [*lines[head:], ""][: [*lines[head:], ""].index("")]
        assert "…" not in table[0]
        assert max(len(line) for line in table if not line.startswith(("left out:", "there are"))) <= 80, terminal.text


def test_what_jobs_carry_cannot_steer_the_terminal(run: Run, url: str) -> None:
    hostile = f"{ESCAPE}[2J{ESCAPE}]0;owned\x07\u202eabc\x9b31m\u200b"
    with Fairlane(url) as app:

        @app.task(name="mail.send")
        def send(text: str) -> None: ...

        handle = send.enqueue(text="x")
        app.jobs.bury(handle, reason=hostile, by="dana", notes=hostile)
        [letter] = app.dead_letters.list().dead_letters
    for words in (["jobs", "show", handle.id], ["dlq", "list"], ["dlq", "show", letter.id], ["audit", "list"]):
        result = run(*words, "--url", url)
        assert result.exit_code == 0
        assert not set(ESCAPE + "\x07\u202e\x9b\u200b") & set(result.output)
        for shown in (
            run(*words, "--json", "--url", url).output,
            on_a_terminal(*map(str, words), "--json", "--url", url),
        ):
            assert not set(ESCAPE + "\x07\u202e\x9b\u200b") & set(shown)
    assert ESCAPE not in on_a_terminal("dlq", "list", "--url", url, NO_COLOR="1")


def test_hostile_text_survives_in_json(run: Run, url: str) -> None:
    text = f'{ESCAPE}[2J "quoted" \n ✓ \U0001f600'
    with Fairlane(url) as app:

        @app.task(name="mail.send")
        def send(text: str) -> None: ...

        handle = send.enqueue(text=text)
    shown = run("jobs", "show", handle.id, "--json", "--url", url).stdout
    assert ESCAPE not in shown
    assert json.loads(shown)["job"]["payload"] == {"text": text}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_knows_no_unicode_does_not_end_the_command(command: Command, made: str, encoding: str) -> None:
    shown = json.loads(command("enqueue", "mail.send", "name=✓\U0001f600", "--json", "--url", made).stdout)
    ran = command("jobs", "show", shown["id"], "--url", made, PYTHONIOENCODING=encoding)
    assert ran.returncode == 0, ran.stderr
    ran = command("jobs", "show", shown["id"], "--json", "--url", made, PYTHONIOENCODING=encoding)
    assert json.loads(ran.stdout)["job"]["payload"] == {"name": "✓\U0001f600"}


def test_a_reader_that_goes_away_is_no_traceback(url: str) -> None:
    with Fairlane(url) as app:

        @app.task(name="mail.send")
        def send(text: str) -> None: ...

        app.enqueue_many([send.bind(text="x" * 5_000) for _ in range(200)])
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlane", "jobs", "list", "--limit", "200", "--json", "--url", url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors


def test_rows_nobody_can_read_are_still_listed(run: Run, scene: Scene) -> None:
    import apsw

    connection = apsw.Connection(scene.url.removeprefix("sqlite:///"))
    connection.execute("update fairlane_job set payload = 'not { json'")
    connection.close()
    page = json.loads(run("jobs", "list", "--json", "--url", scene.url).stdout)
    assert {job["payload"] for job in page["jobs"]} == {"not { json"}
    assert "not { json" in run("jobs", "show", scene.done, "--url", scene.url).stdout


def test_a_question_is_asked_on_a_terminal_and_a_no_changes_nothing(scene: Scene) -> None:
    before = scene.everything()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlane", "jobs", "cancel", scene.waiting, scene.failed, "--url", scene.url],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(ours, b"n\n")
    said, errors = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert (process.returncode, said) == (1, b"")
    assert b"Cancel 2 jobs?" in errors
    assert scene.everything() == before


def test_acts_on_many_show_their_progress_on_a_terminal_and_nowhere_else(
    scene: Scene, tmp_path: Path, command: Command
) -> None:
    with Fairlane(scene.url) as app:

        @app.task(name="mail.send")
        def send() -> None: ...

        ids = [str(handle.id) for handle in app.enqueue_many([send.bind() for _ in range(30)])]
    with Terminal("fairlane", "jobs", "cancel", *ids, "--yes", "--url", scene.url, cwd=tmp_path) as terminal:
        assert terminal.ended() == 0
        assert "Cancel 30 jobs" in terminal.text
        assert "30/30" in terminal.text
        assert terminal.text.count("cancelled") == 30
    again = command("jobs", "cancel", *ids, "--yes", "--url", scene.url)
    assert (again.returncode, again.stderr) == (0, "")
