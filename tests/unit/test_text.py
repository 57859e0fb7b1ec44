"""Text from outside forges no line, no colour and no header."""

from __future__ import annotations

import json
import logging
import shlex
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default

import pytest
from hypothesis import given, strategies as st

from fairlane.alerts.notifications import Message
from fairlane.alerts.sinks import mail_of
from fairlane.cli.output import encoded
from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.alerts import EmailSettings
from fairlane.core.text import command, header_text, log_line, one_line, printable

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTILE = "\x1b[2J\x9b31m\u202eevil\u2066\u200b\u2028\x85\r\nFAKE LOG LINE CRITICAL root: owned"
ENCODED = "=?utf-8?q?=0AReply-To:_mallory@evil.example=0A=0AForged?="
anything = st.text(st.characters())


@given(anything)
def test_nothing_that_prints_nothing_is_left(text: str) -> None:
    for shown in (printable(text), one_line(text), log_line(text), header_text(text)):
        assert shown.isprintable()
    assert "=?" not in header_text(text)
    for line in log_line(text, has_lines=True).split("\n")[1:]:
        assert line.startswith("    ")


@given(st.text(st.characters(exclude_characters="\0")), st.lists(st.text(st.characters(exclude_characters="\0"))))
def test_a_word_of_a_command_to_copy_is_one_word_of_a_shell(name: str, words: list[str]) -> None:
    assert shlex.split(command("fairlane tenants resume {name}", name=name)) == ["fairlane", "tenants", "resume", name]
    assert shlex.split(command("fairlane {words}", words=tuple(words))) == ["fairlane", *words]
    assert command("fairlane queues resume {name}", name="mail") == "fairlane queues resume mail"


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_json_is_printable_and_the_same_document(value: object) -> None:
    for indented in (True, False):
        text = encoded(value, indented=indented).decode()
        assert json.loads(text) == value
        assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("text", ["plain", "größer, größte: 7 €", "日本語", "a 😀 b", 'quoted "x"'])
def test_words_in_any_language_stay(text: str) -> None:
    assert printable(text) == one_line(text) == header_text(text) == text


def test_no_line_of_a_log_is_begun_by_data(caplog: pytest.LogCaptureFixture) -> None:
    log = GuardedLogger("fairlane.test")
    with caplog.at_level(logging.INFO):
        log.warning("job %s failed: %s", HOSTILE, ValueError(HOSTILE), extra={"tenant": HOSTILE})
        log.warning("it failed after %d s, %g %%\n%s", 7, 0.5, f"Traceback:\n  File\nValueError: {HOSTILE}")
        log.debug("%s", HOSTILE)
    plain, trace = caplog.records
    assert plain.getMessage().isprintable()
    assert vars(plain)["tenant"].isprintable()
    assert "\\x1b[2J\\x9b31m\\u202eevil" in plain.getMessage()
    first, *rest = trace.getMessage().split("\n")
    assert first == "it failed after 7 s, 0.5 %"
    assert rest[-1].startswith("    FAKE LOG LINE")
    assert all(line.isprintable() for line in rest)


@pytest.mark.parametrize("about", [HOSTILE, ENCODED, f"{ENCODED} {ENCODED}", "=?" * 9, "=?utf-8?b?CkJjYzogYUBiLmM=?="])
def test_no_header_and_no_body_of_a_mail_is_forged_by_a_tenants_name(about: str) -> None:
    message = Message(
        status="fired", rule="tenant_limit", about=about, severity="warning", value=7.0, threshold=5.0, since=NOON,
        at=NOON, text=f'tenant_limit: tenant "{about}" is at its limit of jobs',
    )  # fmt: skip
    settings = EmailSettings(host="mail.example", sender="fairlane@example.com", to=("oncall@example.com",))
    mail = mail_of(settings, message, "id", NOON)
    received = message_from_bytes(bytes(mail), policy=default)
    assert sorted(received.keys()) == sorted(mail.keys())
    assert str(received["Subject"]).startswith("[warning] tenant_limit")
    assert str(received["Subject"]).isprintable()
    lines = received.get_content().splitlines()
    assert len(lines) == 9
    assert lines[2] == "rule       tenant_limit"
