"""Finds content that does not belong in a job's payload: secrets, e-mail bodies, documents, card numbers.

Key names are compared at any depth, in any letter case and any style of separating words; names that only sound like
secrets (`token_count`) are let through. Values are recognised by their shape, whatever their key.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from fairlane.core.payload.json_scan import shown_key

REDACTED = "[redacted]"

_SHORTEST = 8
"""No telling value is shorter: `ab://:p@`."""

PROVIDER_KEYS = r"""
      (?: gh[pousr]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{60,} | glpat-[A-Za-z0-9_-]{20,}  # GitHub, GitLab
        | xox[abeprs]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{20,}  # Slack
        | [sr]k_(?:live|test)_[A-Za-z0-9]{16,} | whsec_[A-Za-z0-9+=]{20,}  # Stripe
        | sk-(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_-]{20,}  # OpenAI, Anthropic
        | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,} | key-[0-9a-f]{32}  # SendGrid, Mailgun
        | AIza[A-Za-z0-9_-]{35,} | ya29\.[A-Za-z0-9_-]{20,} | GOCSPX-[A-Za-z0-9_-]{20,}  # Google
        | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{50,} | hf_[A-Za-z0-9]{30,}  # registries
        | dckr_pat_[A-Za-z0-9_-]{20,} | dop_v1_[0-9a-f]{60,} | shpat_[0-9a-fA-F]{32} | dapi[0-9a-f]{32}
        | hvs\.[A-Za-z0-9_-]{20,} | AGE-SECRET-KEY-1[A-Z0-9]{20,} | fl_[A-Za-z0-9_-]{43})
"""
"""Keys and tokens whose issuers made them recognisable; the last is Fairlane's own."""
HOOKS = r"""
      (?: hooks\.slack\.com/(?:services|workflows|triggers)/ | discord(?:app)?\.com/api/webhooks/
        | \.webhook\.office\.com/webhookb?2?/ | api\.telegram\.org/bot )
"""
"""Webhooks whose path is the secret; it follows."""
JWT = r"(?<![\w-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"
TWILIO_KEY = r"\bSK[0-9a-f]{32}\b"
AWS_KEY = r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
_TELLING = re.compile(
    rf"""
      (?P<private_key> -----BEGIN\ [A-Z0-9 ]{{0,30}}PRIVATE\ KEY )
    | (?P<jwt>         {JWT} )
    | (?P<aws>         {AWS_KEY} )
    | (?P<provider>    (?<![\w-]){PROVIDER_KEYS} | {TWILIO_KEY} )
    | (?P<hook>        {HOOKS}[\w:-]{{8}} )
    | (?P<bearer>      \b[Bb]earer\ [A-Za-z0-9._~+/-]{{16}} )
    | (?P<url>         \b[a-zA-Z][a-zA-Z0-9+.-]{{1,20}}://(?:[^\s/:@]{{0,100}}:[^\s/@]{{1,100}}|[\w.~%+-]{{20,200}})@ )
    """,
    re.VERBOSE,
)
PROVIDER_MARKS = (
    *("gh", "github_pat_", "glpat-", "xox", "xapp-", "k_live_", "k_test_", "whsec_", "sk-", "SG.", "key-", "AIza"),
    *("ya29.", "GOCSPX-", "npm_", "pypi-", "hf_", "dckr_pat_", "dop_v1_", "shpat_", "dapi", "hvs.", "AGE-", "fl_"),
)
"""One of them is in every key of a provider."""
HOOK_MARKS = ("hooks.slack.com", "/api/webhooks/", ".webhook.office.com", "api.telegram.org")
_MARKS = ("://", "earer ", "-----BEGIN", "eyJ", "AKIA", "ASIA", "SK", *PROVIDER_MARKS, *HOOK_MARKS)
"""One of them is in every telling value: looking for these first is several times quicker."""

_WHY = {
    "private_key": "a private key",
    "jwt": "a JSON web token",
    "aws": "an AWS access key id",
    "provider": "a provider's access token",
    "hook": "a webhook whose address is a secret",
    "bearer": "a bearer token",
    "url": "a password inside a URL",
}

CARD_LIKE = re.compile(r"(?<![\w.+-])[2-6][0-9](?:[ -]?[0-9]){11,17}(?![\w]|[-.][0-9])")
_ISSUERS = re.compile(
    r"""4(?:\d{12}|\d{15}|\d{18})$                                                      # Visa
      | (?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}$               # Mastercard
      | 3[47]\d{13}$                                                                    # American Express
      | 3(?:0[0-5]|[689]\d)\d{11}$ | 35(?:2[89]|[3-8]\d)\d{12}$                         # Diners Club, JCB
      | (?:6011|65\d\d|64[4-9]\d|62\d\d)\d{12,15}$                                      # Discover, UnionPay
      | (?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}$                             # Maestro
    """,
    re.VERBOSE,
)


def sensitive_value(value: object, *, is_id: bool = False) -> str | None:
    """Why a value is sensitive by itself. The numbers of ids are not looked at: one in ten would pass for a card."""
    if isinstance(value, str):
        if len(value) < _SHORTEST:
            return None
        for mark in _MARKS:
            if mark in value and (match := _TELLING.search(value)):
                return _WHY[match.lastgroup or ""]
        if not is_id and any(_is_card(match.group()) for match in CARD_LIKE.finditer(value)):
            return "a card number"
    elif isinstance(value, int) and not is_id and 10**12 <= value < 10**19 and _is_card(str(value)):
        return "a card number"
    return None


def _is_card(text: str) -> bool:
    digits = text.replace(" ", "").replace("-", "")
    return _ISSUERS.match(digits) is not None and len(set(digits)) > 1 and passes_luhn(digits)


def passes_luhn(digits: str) -> bool:
    """Whether the last digit checks the others, as on payment cards."""
    doubled = "0246813579"
    total = sum(int(digit if at % 2 == 0 else doubled[int(digit)]) for at, digit in enumerate(reversed(digits)))
    return total % 10 == 0


Kind = Literal["secret", "number", "content"]

WHY: Mapping[Kind, str] = {
    "secret": "the name of a secret",
    "number": "the name of a personal number",
    "content": "the name of an e-mail's or a document's content",
}


def listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


_NAMES: Mapping[Kind, frozenset[str]] = {
    "secret": listed("""
        password passwd pwd pw passphrase passcode passwort kennwort motdepasse contrasena contraseña senha
        пароль
        seedphrase recoveryphrase
        secret clientsecret apisecret token apitoken credential authorization proxyauthorization bearer cookie setcookie
        apikey accesskey authkey secretkey privatekey encryptionkey decryptionkey signingkey masterkey sshkey
        pgpkey gpgkey
        servicekey accountkey sharedkey storagekey otp totp mfacode otpcode recoverycode backupcode connectionstring
    """),
    "number": listed("""
        creditcard debitcard cardnumber cardno ccnumber ccnum cvv cvc cardcode cardpin pincode pinnumber
        ssn socialsecurity socialsecuritynumber socialsecurityno
    """),
    "content": listed("""
        emailbody mailbody messagebody bodyhtml bodytext bodyplain htmlbody textbody emailcontent mailcontent
        emailhtml emailtext
        rawemail rawmail rawmessage rawmime documentcontent documentbody documenttext documentdata documentbytes
        filecontent filedata filebytes filebody attachmentcontent attachmentdata attachmentbody attachmentbytes
    """),
}
"""Looked for at the end of a name, word by word, separators left out."""

_WHOLE_NAMES = listed("pass auth")
"""Secrets, but too common inside other names to be looked for there."""

_GLUED = (
    *("password", "passwd", "passphrase", "apikey", "secretkey", "privatekey", "accesskey", "dbpass", "userpass"),
    *("accesstoken", "authtoken", "csrftoken", "xsrftoken", "idtoken", "refreshtoken", "sessiontoken"),
)
"""Seen also at the end of a word written without any separator: `dbpassword`."""

_ACCOUNTS = listed("""
    db database user root admin login account mysql mariadb pg postgres postgresql mongo redis rabbit rabbitmq amqp
    smtp imap mail email ftp sftp ssh http https proxy auth ldap bind vpn wifi app service
""")
"""Words before `pass` that make it a password: `db_pass`, not `boarding_pass`."""

_TRAILING = listed("value hash text str string plain plaintext raw confirm confirmation again pem b base header")
"""Words that may follow a secret's name without changing what it is."""

_MEASURES = listed("""
    max min total num number n used prompt completion input output cached reasoning remaining budget
    page next previous prev continuation cursor pagination sync delta
""")
"""Words before `token` that make it a measure, or a place in a listing."""

_QUESTIONS = listed("is has needs requires require forgot forgotten no")
_MAIL_PARTS = listed("body content html text")
_VAGUE = _MAIL_PARTS | listed("contents data bytes raw key number")
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


def may_name_secret(key: str, others: Collection[str]) -> bool:
    """Whether a key may mark something as sensitive in an object whose keys, at any depth, are all among `others`."""
    name = _name_of(key[-_LONGEST:])
    if name.kind is not None or key in _VALUE_KEYS:
        return True
    if name.compact not in _VAGUE:
        return False
    return "subject" in others or any(names_secret(f"{other.removesuffix('s')} {key}") for other in others)


def names_id(key: str) -> bool:
    return _name_of(key[-_LONGEST:]).last in ("id", "ids", "uuid", "uid")


def _telling_name(key: str) -> str | None:
    """Why a name itself is sensitive, whatever it names. It may be so anywhere; only short names are remembered."""
    return _name_of(key).why if len(key) <= _LONGEST else sensitive_value(key, is_id=True)


class _Name(NamedTuple):
    kind: Kind | None
    compact: str
    last: str
    why: str | None


@lru_cache(maxsize=4096)
def _name_of(key: str) -> _Name:
    words = [word.lower() for word in _WORD.findall(unicodedata.normalize("NFKC", key))][-_MOST_WORDS:]
    return _Name(_kind_of(words), "".join(words), words[-1] if words else "", sensitive_value(key, is_id=True))


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
    if endings[0] in _WHOLE_NAMES or (words[-1] == "pass" and words[-2] in _ACCOUNTS):
        return "secret"
    for kind, names in _NAMES.items():
        if any(ending in names or ending.removesuffix("s") in names for ending in endings):
            return kind
    return "secret" if words[-1].endswith(_GLUED) or words[-1].removesuffix("s").endswith(_GLUED) else None


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


SensitivePolicy = Literal["refuse", "redact", "allow"]

_Step = str | int
_DEEPEST = 100
"""No payload nested deeper is ever accepted, so none is followed deeper."""


class SensitiveContent(NamedTuple):
    path: str
    why: str


def find(payload: object) -> list[SensitiveContent]:
    """Every sensitive value, with the path to it and the reason."""
    return [SensitiveContent(_shown(steps), why) for steps, why in _walk(payload)]


def redact(payload: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A copy with every sensitive value replaced, and the paths to them. In the copy `find` finds nothing."""
    found = [steps for steps, _ in _walk(payload)]
    copy = _copied(payload)
    for steps in found:
        holder: Any = copy
        for step in steps[:-1]:
            holder = holder[step]
        if _is_telling(steps[-1]):
            del holder[steps[-1]]
            holder[REDACTED] = REDACTED
        else:
            holder[steps[-1]] = REDACTED
    return copy, [_shown(steps) for steps in found]


def _walk(payload: object) -> Iterator[tuple[tuple[_Step, ...], str]]:
    waiting: list[tuple[tuple[_Step, ...], object, str]] = [((), payload, "")]
    while waiting:
        steps, value, parent = waiting.pop()
        if len(steps) > _DEEPEST:
            continue
        if isinstance(value, dict):
            email = is_email(value)
            named = _name_beside(value)
            inner: list[tuple[tuple[_Step, ...], object, str]] = []
            for key, item in value.items():
                name = named if named and key in _VALUE_KEYS else str(key)
                why = (
                    sensitive_name(name, item, parent, in_email=email)
                    or sensitive_value(item, is_id=names_id(name))
                    or _telling_name(name)
                )
                if why:
                    yield (*steps, key), why
                elif isinstance(item, (dict, list, tuple)):
                    inner.append(((*steps, key), item, name))
            waiting += reversed(inner)
        elif isinstance(value, (list, tuple)):
            pairs = _are_pairs(value)
            for at, item in enumerate(value):
                if pairs and (why := sensitive_name(item[0], item[1])):
                    yield (*steps, at, 1), why
                elif why := sensitive_value(item, is_id=names_id(parent)):
                    yield (*steps, at), why
                elif isinstance(item, (dict, list, tuple)):
                    waiting.append(((*steps, at), item, parent))


_NAME_KEYS = ("name", "key", "field", "header", "param", "parameter")
_VALUE_KEYS = ("value", "val")


def _name_beside(value: dict[str, Any]) -> str | None:
    """The name that an object gives its value: `{"name": "password", "value": …}`."""
    if not any(key in value for key in _VALUE_KEYS):
        return None
    return next((name for key in _NAME_KEYS if isinstance(name := value.get(key), str)), None)


def _are_pairs(items: list[Any] | tuple[Any, ...]) -> bool:
    """Whether these are names with values: `[["password", …], ["user", …]]`."""
    return all(isinstance(item, (list, tuple)) and len(item) == 2 and isinstance(item[0], str) for item in items)


def _is_telling(step: _Step) -> bool:
    return isinstance(step, str) and _telling_name(step) is not None


def _copied(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        return {key: _copied(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item, depth + 1) for item in value]
    return value


def _shown(steps: tuple[_Step, ...]) -> str:
    keys = (f"[{step}]" if isinstance(step, int) else f".{_shown_step(step)}" for step in steps)
    return "".join(keys).lstrip(".")


def _shown_step(step: str) -> str:
    return REDACTED if _is_telling(step) else shown_key(step)


_MOST_KEYS = 64

# By the rare character each begins with: a search for one takes a fiftieth of a search for thirty alternatives.
_MARKED = {
    b"_": (
        rb"_(?:(?<=gh[pousr]_)[A-Za-z0-9]{36}|(?<=github_)pat_|(?<=[sr]k_)(?:live|test)_|(?<=whsec_)|(?<=dop_)v1_"
        rb"|(?<=npm_)[A-Za-z0-9]{30}|(?<=hf_)[A-Za-z0-9]{30}|(?<=dckr_)pat_|(?<=shpat_)|(?<=fl_)[A-Za-z0-9_-]{43})"
    ),
    b"-": (
        rb"-(?:(?<=glpat-)|(?<=xox[abeprs]-)|(?<=xapp-)|(?<=sk-)[A-Za-z0-9_-]{20}|(?<=key-)[0-9a-f]{32}|(?<=GOCSPX-)"
        rb"|(?<=pypi-)[A-Za-z0-9_-]{50})"
    ),
    b".": (
        rb"\.(?:(?<=SG\.)[A-Za-z0-9_-]{16}|(?<=ya29\.)|(?<=hvs\.)|eyJ|(?<=hooks\.)slack\.com/|com/api/webhooks/"
        rb"|webhook\.office\.com/|(?<=api\.)telegram\.org/bot)"
    ),
    b"A": rb"A(?:(?:KIA|SIA)[0-9A-Z]{16}|Iza)",
    b"K": rb"K(?:(?<=PRIVATE K)EY|(?<=AGE-SECRET-K)EY-1|(?<=SK)[0-9a-f]{32})",
    b"@": rb'://(?:[^\s/@"\\]|\\.)*+@',
}
_MARK = re.compile(rb"[-_.AK@ ]").search
_SHORT_TEXT = 256
"""Characters; in so short a text one search for all marks is quicker than one for each."""
# A search by pattern takes half of the time that `in` takes for a text of many different characters.
_PAIRS, _BEARER, _DAPI = (re.compile(pattern).search for pattern in (rb'\[\["', b"earer ", b"dapi"))
_SEARCHES = tuple((mark, re.compile(pattern).search) for mark, pattern in _MARKED.items())
_CARD = re.compile(CARD_LIKE.pattern.encode())
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
_FEWEST_DIGITS = b"0" * 13


def is_clean(text: bytes) -> bool:
    """Whether the text of a payload certainly holds nothing sensitive, without a walk over its values; False: it may.

    It never clears what `find` would find, but it doubts many a text that is harmless: `find` looks at those.
    tests/unit/test_clean_text.py holds both against each other. A walk over 50 KB took ten times as long.

    The text is as the codec writes it: no space between tokens, and nothing escaped in a string but quotes, backslashes
    and control characters. A pattern here therefore has no condition on what stands before a match: that may be the
    letter of an escape.
    """
    # Lists of two may hold a name and its value.
    return _PAIRS(text) is None and not _may_tell(text) and not _may_hold_card(text) and _are_harmless(_keys(text))


def _may_tell(text: bytes) -> bool:
    """Whether a value may give itself away: a token, a key, an address with a password."""
    if len(text) < _SHORT_TEXT and _MARK(text) is None:
        return b"dapi" in text
    for mark, search in _SEARCHES:
        if mark in text and search(text) is not None:
            return True
    return _BEARER(text) is not None or _DAPI(text) is not None


def _may_hold_card(text: bytes) -> bool:
    if _FEWEST_DIGITS not in text.translate(_DIGITS, b" -"):
        return False
    return b"\\" in text or _CARD.search(text) is not None


def _keys(text: bytes) -> frozenset[bytes]:
    """Every key of a text, and what looks like one: the text between a colon after a quote and the quote before."""
    if b"\\" in text:
        # No more or fewer words for a name, nor more characters: only the end of a long one is looked at.
        text = text.replace(b"\\\\", b" ").replace(b'\\"', b" ")
    return frozenset([part[part.rfind(b'"') + 1 :] for part in text.split(b'":')[:-1]])


@lru_cache(maxsize=1024)
def _are_harmless(keys: frozenset[bytes]) -> bool:
    """Whether no value is sensitive for its key, whichever of these keys lie within which."""
    if len(keys) > _MOST_KEYS or any(b"\\" in key for key in keys):
        return False
    names = {key.decode() for key in keys}
    return not any(may_name_secret(name, names) for name in names)
