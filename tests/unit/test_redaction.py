"""Secrets are taken out of text before it is kept; everything else stays readable."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, strategies as st

from fairlane.core.payload import redaction
from fairlane.core.payload.redaction import value_without_secrets, without_secrets
from fairlane.core.payload.storable import failure, format_traceback, safe_str
from tests.support.leaks import INNOCENT, KEYS, LEAKS

SECRET = "hunter2-canary"


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("text", LEAKS)
def test_a_secret_in_an_error_is_not_kept(text: str) -> None:
    text = text.format(x=SECRET)
    for kept in (without_secrets(text), safe_str(ValueError(text)), format_traceback(ValueError(text))):
        assert [part for part in ("hunter2", "canary") if part in kept] == []
        assert "[redacted]" in kept


@pytest.mark.parametrize("secret", KEYS)
def test_a_token_of_a_known_shape_is_not_kept_wherever_it_stands(secret: str) -> None:
    assert without_secrets(f"refused: {secret}!") == "refused: [redacted]!"
    assert without_secrets(f"GET /v1/{secret}/items") == "GET /v1/[redacted]/items"
    assert secret not in repr(value_without_secrets({secret: [{secret: secret}]}))


def test_the_user_and_password_of_basic_authentication_are_not_kept() -> None:
    assert without_secrets("sent Basic YWRhOmh1bnRlcjI= to the server") == "sent Basic [redacted] to the server"


@pytest.mark.parametrize("text", INNOCENT)
def test_what_only_sounds_like_one_stays(text: str) -> None:
    assert without_secrets(text) == text


@example("Cookie: theme=dark; session={x}", INNOCENT[0], "cookies={{'sid': '{x}'}}", " ")
@example("Set-Cookie: sid={x}; Path=/; HttpOnly", INNOCENT[0], "{{'password': b'{x}'}}", "; ")
@given(
    st.sampled_from(LEAKS), st.sampled_from(INNOCENT), st.sampled_from(LEAKS), st.sampled_from(["\n", " ", "; ", " | "])
)
def test_a_secret_is_found_whatever_stands_around_it(first: str, between: str, last: str, joint: str) -> None:
    kept = without_secrets(joint.join((first.format(x=SECRET), between, last.format(x=SECRET))))
    assert SECRET not in kept


def test_chained_and_grouped_exceptions_are_looked_through() -> None:
    address, header = f"no postgresql://app:{SECRET}@db/shop", f"401 for Authorization: Bearer {SECRET}"
    try:
        try:
            raise ConnectionError(address)
        except ConnectionError as cause:
            raise ExceptionGroup("two", [ValueError(header), ValueError("b")]) from cause
    except ExceptionGroup as error:
        what = failure(error, "transient", "mail.send")
    assert SECRET not in str(what)
    assert (what.traceback or "").count("[redacted]") == 2


@pytest.mark.parametrize("at", [1_300, 1_990, 4_000, 32_760, 40_000, 99_960])
def test_a_secret_is_found_before_the_text_is_cut(at: int) -> None:
    text = "x " * (at // 2) + f"postgresql://app:{SECRET}@db " + "y " * 50_000
    assert SECRET[:6] not in safe_str(ValueError(text))


@given(st.text(st.characters(), max_size=200), st.integers(0, 70_000))
def test_any_text_comes_back_without_the_secret(around: str, padding: int) -> None:
    text = " " * padding + around + f" https://u:{SECRET}@h " + around
    assert SECRET not in without_secrets(text)


PIECES = [
    *(
        "token",
        "://",
        "://a:",
        "eyJ",
        "bearer ",
        "Cookie:",
        "password='",
        "'",
        "-----BEGIN KEY",
        "value:",
        "value:'a',",
    ),
    *(
        "password: ",
        "password=\\",
        "password for a",
        "[('password', ",
        "authorization: a b, c=d",
        "?sig=",
        "a:b@c:",
        "sk-a",
    ),
    *(
        "postgres:///a:",
        "password ) = ",
        "<Cookie a=",
        "hooks.slack.com/services/",
        "SG.",
        "-u a:",
        "api key ",
        "basic a",
    ),
    *(
        "passphrase: a ",
        "mysql ",
        "sshpass -p",
        "docker login ",
        "Auth('a',",
        "('password', '",
        "sessionid=",
        "secrets={'",
    ),
    *("secrets={[(", "secrets={a}", 'password=\\"', "identified by ", "password%3D", "seed phrase: is "),
    *("[type=a, input_value='", "'input': '", "'loc': 'input': 'a", " as the password", "a'b as token", "sid='"),
    *("signature=", "jdbc:oracle:thin:a/", "jdbc:oracle:thin:a/b@", "парол", "mot de passe : ", "SAMLResponse=%"),
    *("AGE-SECRET-KEY-1", "SKa1"),
]


@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_long(piece: str) -> None:
    """Quadratic work on 10 MB, or on a result that is examined whole, would not end within the test's time."""
    assert len(without_secrets(piece * (10_000_000 // len(piece)))) > 1_000_000
    assert value_without_secrets(piece * (60_000 // len(piece)))


class Counted:
    """A pattern that counts the characters of the values it matches."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern, self.chars = pattern, 0

    def match(self, text: str, at: int) -> re.Match[str] | None:
        found = self.pattern.match(text, at)
        self.chars += len(found[0]) if found else 0
        return found


@pytest.mark.parametrize(
    "piece", [*PIECES, "key=", "auth=", "auth:", "auth =", "number:", "string=b", "passes:", "keys>"]
)
def test_a_value_is_examined_once(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many names stand inside what may be a value, the work grows with the text and not with its square."""
    counted = Counted(redaction._VALUE)
    monkeypatch.setattr(redaction, "_VALUE", counted)
    text = piece * (20_000 // len(piece))
    value_without_secrets(text)
    assert counted.chars <= 4 * len(text)
