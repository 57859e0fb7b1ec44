"""Key names that announce secrets, and the false friends that only sound like them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from fairlane.core.sensitive_values import REDACTED

Kind = Literal["secret", "number", "content"]

WHY: Mapping[Kind, str] = {
    "secret": "the name of a secret",
    "number": "the name of a personal number",
    "content": "the name of an e-mail's or a document's content",
}


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


_NAMES: Mapping[Kind, frozenset[str]] = {
    "secret": _listed("""
        password passwd pwd passphrase passcode passwort kennwort motdepasse contrasena senha
        secret clientsecret apisecret token apitoken credential authorization proxyauthorization bearer cookie setcookie
        apikey accesskey authkey secretkey privatekey encryptionkey decryptionkey signingkey masterkey sshkey pgpkey gpgkey
        servicekey accountkey otp totp mfacode otpcode recoverycode backupcode connectionstring
    """),
    "number": _listed("""
        creditcard debitcard cardnumber cardno ccnumber ccnum cvv cvc cardcode cardpin pincode pinnumber
        ssn socialsecurity socialsecuritynumber socialsecurityno
    """),
    "content": _listed("""
        emailbody mailbody messagebody bodyhtml bodytext bodyplain htmlbody textbody emailcontent mailcontent emailhtml emailtext
        rawemail rawmail rawmessage rawmime documentcontent documentbody documenttext documentdata documentbytes
        filecontent filedata filebytes filebody attachmentcontent attachmentdata attachmentbody attachmentbytes
    """),
}
"""Looked for at the end of a name, word by word, separators left out."""

_WHOLE_NAMES = _listed("pass auth")
"""Secrets, but too common inside other names to be looked for there."""

_GLUED = ("password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesstoken", "authtoken")
"""Seen also at the end of a word written without any separator: `dbpassword`."""

_TRAILING = _listed("value hash text str string plain plaintext raw confirm confirmation again pem b base header")
"""Words that may follow a secret's name without changing what it is."""

_MEASURES = _listed("""
    max min total num number n used prompt completion input output cached reasoning remaining budget
    page next previous prev continuation cursor pagination sync delta
""")
"""Words before `token` that make it a measure, or a place in a listing."""

_QUESTIONS = _listed("is has needs requires require forgot forgotten no")
_MAIL_PARTS = _listed("body content html text")
_VAGUE = _MAIL_PARTS | _listed("contents data bytes raw key number")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[^\W\d_]+")
_LONGEST = 128
"""Only the end of a name is looked at, and remembered."""
_MOST_WORDS = 12


def sensitive_name(key: str, value: object, parent: str = "", *, in_email: bool = False) -> str | None:
    """Why a key's name marks its value as sensitive; None if it does not, or there is nothing to hide."""
    name = _name_of(key[-_LONGEST:])
    kind = name.kind
    if kind is None and name.compact in _VAGUE:
        # Such a name means something only together with its parent's: `document: {content: …}`.
        kind = names_secret(f"{parent.removesuffix('s')} {key}") if parent else None
        if kind is None and in_email and name.compact in _MAIL_PARTS:
            kind = "content"
    if kind is None or not _hides_something(value):
        return None
    if kind == "secret" and "token" in name.last and not _holds_text(value):
        return None  # `tokens: 1500` is a measure
    return WHY[kind]


def names_secret(key: str) -> Kind | None:
    """What kind of secret a name announces."""
    return _name_of(key[-_LONGEST:]).kind


def names_id(key: str) -> bool:
    return _name_of(key[-_LONGEST:]).last in ("id", "ids", "uuid", "uid")


class _Name(NamedTuple):
    kind: Kind | None
    compact: str
    last: str


@lru_cache(maxsize=4096)
def _name_of(key: str) -> _Name:
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", key))][-_MOST_WORDS:]
    return _Name(_kind_of(words), "".join(words), words[-1] if words else "")


def _kind_of(words: list[str]) -> Kind | None:
    while words:
        if kind := _kind_of_ending(words):
            return kind
        if words[-1] not in _TRAILING:
            return None
        words = words[:-1]
    return None


def is_email(value: dict[str, object]) -> bool:
    """Whether an object looks like an e-mail: its plain `body` is then what the name says."""
    return "subject" in value and any(key in value for key in ("to", "recipient", "recipients", "from", "cc"))


def _kind_of_ending(words: list[str]) -> Kind | None:
    if words[0] in _QUESTIONS:
        return None
    if words[-1] in ("token", "tokens") and not _MEASURES.isdisjoint(words[:-1]):
        return None
    endings = ["".join(words[at:]) for at in range(len(words))]
    if endings[0] in _WHOLE_NAMES:
        return "secret"
    for kind, names in _NAMES.items():
        if any(ending in names or ending.removesuffix("s") in names for ending in endings):
            return kind
    return "secret" if words[-1].removesuffix("s").endswith(_GLUED) else None


def _hides_something(value: object) -> bool:
    if isinstance(value, (str, list, tuple, dict)):
        return bool(value) and value != REDACTED
    return value is not None and not isinstance(value, bool)


def _holds_text(value: object) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str) and item not in ("", REDACTED):
            return True
        if isinstance(item, dict):
            waiting += item.values()
        elif isinstance(item, (list, tuple)):
            waiting += item
    return False
