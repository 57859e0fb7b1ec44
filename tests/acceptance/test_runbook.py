"""Every command of the runbook does what stands below it, in the section's own scene."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlane.cli.main import COMMANDS
from fairlane.core.alerts import DEFAULT_RULES
from tests.acceptance.runbook_scenes import ROOT, SCENES, Stage
from tests.faults.eventually import eventually

PAGE = (ROOT / "docs" / "operate" / "runbook.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXITS_WITH = re.compile(r"\s+# exits with (\d+)$")
LOOKS = re.compile(
    r"^(grep|fairlane (queues|pauses|snapshot|healthcheck|doctor|config|\w+ (list|show|why|status|check|verify)))\b"
)
"""What only looks may be asked again until it shows what was just done; what acts is done once."""


class Step(NamedTuple):
    command: str
    exit_code: int
    expected: tuple[str, ...]


def steps(text: str) -> Iterator[Step]:
    """The commands of a page's console blocks, each with the lines below it."""
    for block in CONSOLE.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.strip().splitlines()
            found = EXITS_WITH.search(command)
            yield Step(EXITS_WITH.sub("", command), int(found[1]) if found else 0, tuple(expected))


SECTIONS = {title: tuple(steps(text)) for title, text in SECTION.findall(PAGE)}


def shows(output: str, expected: str) -> bool:
    """Whether a line of the output is this one, however wide its columns are; … stands for anything."""
    pattern = ".*".join(re.escape(" ".join(part.split())) for part in expected.split("…"))
    looked_for = re.compile(re.sub(r"\.\*(?=\S)", r".*\\s*", re.sub(r"(?<=\S)\.\*", r"\\s*.*", pattern)))
    return any(looked_for.fullmatch(" ".join(line.split())) for line in output.splitlines())


def follow(stage: Stage, step: Step) -> None:
    def differs() -> str | None:
        ran = stage.shell(step.command)
        output = ran.stdout + ran.stderr
        missing = [line for line in step.expected if not shows(output, line)]
        if ran.returncode == step.exit_code and not missing:
            return None
        return f"$ {step.command}\n{output}exit code {ran.returncode}, expected {step.exit_code}; missing: {missing}"

    said = differs()
    if said is not None and LOOKS.match(step.command):
        try:
            eventually(lambda: differs() is None, within_s=30)
        except AssertionError:
            said = differs()
        else:
            said = None
    assert said is None, said


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.chdir(tmp_path)
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.mark.requirement("L22")
@pytest.mark.parametrize("title", SECTIONS)
def test_every_step_of_the_runbook_does_what_stands_below_it(title: str, stage: Stage) -> None:
    SCENES[title](stage)
    for step in SECTIONS[title]:
        follow(stage, step)


@pytest.mark.requirement("L22")
def test_the_runbook_has_what_the_documents_ask_for_and_a_scene_for_each_section() -> None:
    assert set(SECTIONS) == set(SCENES)
    assert {
        "Failed jobs",
        "A dependency is down",
        "Emergency stop",
        "Drain before maintenance",
        "A job is stuck",
        "Many jobs fail",
        "A queue backs up",
        "A worker grows or crashes",
    } <= set(SECTIONS)
    assert all(SECTIONS.values())


def test_every_command_that_says_something_has_what_to_expect_below_it() -> None:
    silent = re.compile(r"kill -\w+ \$FOREMAN|fairlane worker .*--drain")
    for step in (step for section in SECTIONS.values() for step in section):
        assert step.expected or silent.fullmatch(step.command), step.command


def test_commands_of_ours_stand_where_they_are_tried() -> None:
    """In running text only the name of a command may stand, never one with arguments that nobody tries."""
    prose = CONSOLE.sub("", PAGE)
    for mentioned in re.findall(r"`fairlane ([^`]+)`", prose):
        assert mentioned in COMMANDS, f"`fairlane {mentioned}` is not tried: put it into a console block"


def test_every_default_alert_leads_to_a_section() -> None:
    rows = re.findall(r"^\| (`.+`) \| \[(.+)\]\(([^)#]*)#", PAGE, re.MULTILINE)
    led = [rule for rules, *_ in rows for rule in re.findall(r"`(\w+)`", rules)]
    assert sorted(led) == sorted(rule.name for rule in DEFAULT_RULES)
    assert {title for _, title, page in rows if not page} <= set(SECTIONS)
    assert [title for _, title, page in rows if page] == ["What went wrong"], "on a page that has its own tests"


@pytest.mark.parametrize(
    ("output", "expected", "is_shown"),
    [
        ("ID   STATE\n7    open   soon\n", "7 open …", True),
        ("7    open\n", "7 open …", True),
        ("7    open\n", "… open", True),
        ("7    closed\n", "7 open …", False),
        ("weight      0.5\n", "weight 0.5", True),
        ("weight      0.55\n", "weight 0.5", False),
        ("", "…", False),
    ],
)
def test_an_expected_line_is_found_or_missed_as_a_person_would(output: str, expected: str, is_shown: bool) -> None:
    assert shows(output, expected) is is_shown
