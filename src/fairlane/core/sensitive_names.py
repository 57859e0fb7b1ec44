"""Key names that announce secrets, and the false friends that only sound like them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from fairlane.core.sensitive_values import REDACTED

_SECRETS = frozenset(
    """
    password passwd pwd passphrase passcode secret token credential authorization proxyauthorization cookie setcookie
    apikey apitoken apisecret accesskey authkey secretkey privatekey encryptionkey decryptionkey signingkey masterkey
    sshkey pgpkey gpgkey servicekey accountkey clientsecret otp totp mfacode otpcode recoverycode backupcode
    connectionstring bearer kontopasswort passwort kennwort motdepasse contrasena senha
    """.split()
)
_NUMBERS = frozenset(
    """
    creditcard cardnumber creditcardnumber debitcard debitcardnumber ccnumber ccnum cardno cvv cvv2 cvc cvc2 cardcode cardpin
    pincode pinnumber ssn socialsecuritynumber socialsecurity socialsecurityno
    """.split()
)
_CONTENT = frozenset(
    """
    emailbody mailbody messagebody bodyhtml bodytext bodyplain htmlbody textbody emailcontent mailcontent emailhtml
    emailtext rawemail rawmail rawmessage rawmime documentcontent documentbody documenttext documentdata documentbytes filecontent filedata filebytes filebody
    attachmentcontent attachmentdata attachmentbody attachmentbytes
    """.split()
)
_WHOLE_NAMES = frozenset({"pass", "auth"})
"""Too common inside other names to be looked for there."""

_KINDS: tuple[tuple[frozenset[str], str], ...] = (
    (_SECRETS, "the name of a secret"),
    (_NUMBERS, "the name of a personal number"),
    (_CONTENT, "the name of an e-mail's or a document's content"),
)
_GLUED = ("password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesstoken", "authtoken")
"""Seen also at the end of a word written without any separator: `dbpassword`."""

_TRAILING = frozenset(
    "value values hash text str string plain plaintext raw confirm confirmation again pem b64 base64 header new old".split()
)
"""Words that may follow a secret's name without changing what it is."""

_HARMLESS_TOKENS = frozenset(
    """
    max min total num number n count used prompt completion input output cached reasoning remaining budget
    page next previous prev continuation cursor pagination sync delta
    """.split()
)
"""Words before `token` that make it a measure or a place in a listing."""

_QUESTIONS = frozenset({"is", "has", "needs", "requires", "require", "forgot", "forgotten", "no"})
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[^\W\d_]+")
_LONGEST = 128
_MOST_WORDS = 12


def sensitive_name(key: str, value: object, parent: str = "", *, in_email: bool = False) -> str | None:
    """Why a key's name marks its value as sensitive; None if it does not, or there is nothing to hide."""
    if value is None or isinstance(value, bool) or value in ("", REDACTED) or value == [] or value == {}:
        return None
    kind = names_secret(key) or (names_secret(f"{parent} {key}") if parent and _is_vague(key) else None)
    if kind is None and in_email and _is_vague(key) and isinstance(value, str):
        kind = _KINDS[2][1]
    # `tokens: 1500` is a measure; a number is a secret only where secrets are numbers, or under a password's name.
    if kind == _KINDS[0][1] and isinstance(value, (int, float)) and "token" in _words(key)[-1].lower():
        return None
    return kind


@lru_cache(maxsize=4096)
def names_secret(key: str) -> str | None:
    """What kind of secret a name announces."""
    words = _words(key)
    while len(words) > 1 and words[-1] in _TRAILING:
        whole = _kind_of_ending(words)
        if whole:
            return whole
        words = words[:-1]
    return _kind_of_ending(words) if words else None


def is_about_an_id(key: str) -> bool:
    words = _words(key)
    return bool(words) and words[-1] in ("id", "ids", "uuid", "uid", "number") and _kind_of_ending(words) is None


def is_email(value: Mapping[str, object]) -> bool:
    """Whether an object looks like an e-mail: its plain `body` is then what the name says."""
    return "subject" in value and any(key in value for key in ("to", "recipient", "recipients", "from", "cc"))


def _is_vague(key: str) -> bool:
    """Names that mean something only with their parent's: `document: {content: …}`."""
    return "".join(_words(key)) in {
        "body",
        "content",
        "contents",
        "html",
        "text",
        "data",
        "bytes",
        "raw",
        "key",
        "number",
    }


def _kind_of_ending(words: list[str]) -> str | None:
    if not words or words[0] in _QUESTIONS:
        return None
    endings = ["".join(words[at:]) for at in range(len(words))]
    if endings[0] in _WHOLE_NAMES:
        return _KINDS[0][1]
    for ending in endings:
        for names, kind in _KINDS:
            if ending in names or (ending.endswith("s") and ending[:-1] in names):
                return None if _is_harmless_token(words) else kind
    return _KINDS[0][1] if words[-1].removesuffix("s").endswith(_GLUED) else None


def _is_harmless_token(words: list[str]) -> bool:
    return words[-1] in ("token", "tokens") and bool(_HARMLESS_TOKENS.intersection(words[:-1]))


def _words(key: str) -> list[str]:
    text = unicodedata.normalize("NFKC", key[-_LONGEST:])
    words = [word.lower() for word in _WORD.findall(text)]
    return words[-_MOST_WORDS:]
