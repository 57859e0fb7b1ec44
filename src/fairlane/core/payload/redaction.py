"""Removes secrets from what is about to be kept or shown: errors, tracebacks, log lines, people's notes, results.

Recognises passwords inside URLs, values after a name that announces a secret, authorization headers, keys and tokens of
known shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from string import ascii_letters, digits
from typing import Any

from fairlane.core.payload import secrets
from fairlane.core.payload.secrets import REDACTED

_WINDOW = 32_768
"""Of a very long text only this much of either end is examined and kept; the rest is blanked."""

_DEEPEST = 100
"""No result nested deeper is ever kept by a worker."""

_QUOTED = r""" [bBrRuUfF]{0,2} (?: \\"(?:[^"\\\r\n]|\\\\\\"|\\(?!"))*+\\?"? | \\+"[^"\r\n]*"? | \\+'[^'\r\n]*'?
                                  | "(?:\\.|[^"\\\r\n])*+"? | '(?:\\.|[^'\\\r\n])*+'? | `[^`\r\n]*`? ) """
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_IN_A_URL = re.compile(
    r"""(?P<kept>://[^\s/:"'<>]{0,100}:)
        (?: [^\s/]{1,300}(?=@) | (?![0-9]{1,5}(?:[/?#]|$))[^\s"'<>]{1,300}(?=@) )   # not a port
      | (?P<alone>\bhttps?://)(?!git@)[^\s/:@?\#"'<>]{1,300}(?=@)
      | (?P<long>://)[\w.~%+-]{20,300}(?=@)
      | (?P<slip>\b(?:postgres(?:ql)?|mysql|mariadb|rediss?|amqps?|mongodb|https?|smtps?|ftp):?/{1,3}[^\s/:@]{0,100}:)
        [^\s/]{1,300}(?=@)
      | (?P<mysql>\b[\w.-]{1,60}:)[^\s:@/]{1,200}(?=@(?:tcp|unix)?\(|@[\w.-]{1,200}:[0-9]{2,5}/)
      | (?P<oracle>\bjdbc:oracle:\w{1,20}:[^\s/@]{1,100}/)
        (?: "[^"\s]{1,300}" | \S{1,300}? )(?=@(?://|\(|[\w.-]{1,200}[:/]))""",
    re.VERBOSE | re.IGNORECASE,
)
_SIGNED = re.compile(
    r"""(?P<kept>[?&;](?:sig|signature|hmac|x-(?:amz|goog)-(?:signature|credential)|auth)=)[^\s&"'<>;]+
      | (?P<key>[?&](?:key|code)=)[^\s&"'<>;]{20,}
      | (?P<alone>(?<!\w)signature=)(?=[^\s&"'<>;,)]{0,60}[0-9])[^\s&"'<>;,)]{8,}""",
    re.VERBOSE | re.IGNORECASE,
)
_HOOK = re.compile(rf"(?P<kept>{secrets.HOOKS})[\w:/-]{{8,}}", re.VERBOSE)
_HEADER = re.compile(
    rf"""(?P<kept>\b(?:proxy-)?authorization["']?(?:\s*[:=]\s*|\s*,\s*(?=b?["'])))
         (?: {_QUOTED} | [^\s"',]+ (?:[ \t]+[^\s"',]+)? (?:"[^"\r\n]*")?
                         (?:[ \t]*,[ \t]*[\w-]{{1,40}}=(?:"[^"\r\n]*"|[^\s,"']*)){{0,20}} )
       | (?P<cookie>\b(?:set-)?cookies?["']?(?:\s*[:=]\s*|\s*,\s*(?=b?["'])))
         (?: {_QUOTED} | [{{\[][^}}\]\r\n]*[}}\]]?
           | (?: [^"'\r\n]++ | (?=["'][^\s,;:.)\]}}>"'\\]) {_QUOTED} )++ )  # up to a quote that ends the text around it
       | (?P<jar><Cookie\ [^\s=]{{1,100}}=)[^\s>]+""",
    re.VERBOSE | re.IGNORECASE,
)
_STEMS = re.compile(
    "pass|pw|kennwort|senha|contrasena|secret|phrase|token|credential|bearer|auth|otp|key|string|cvv|cvc|ssn|card|number"
)
_ALL_STEMS = re.compile(f"{_STEMS.pattern}|contraseñ|contrasen\u0303|парол")
"""One is in every name that `secrets.names_secret` knows. Searched in lower case: ignoring case is ten times slower."""
_TWO_WORDS = re.compile(
    r"(?:api|access|auth|secret|private|signing|encryption|master|pass|seed|recovery|connection|card|mot[ ]de)[ ]\Z",
    re.I,
)
_ANNOUNCED = re.compile(
    r"""[\w.-]{0,40}+
         (?: (?P<quoted> \\*["'`\])]{1,3}\s{0,9}(?:=>|->|:=|[:=])\s{0,40} )
           | (?P<given>  [ \t]{0,9}(?:=>|:=|=(?!=))[ \t]{0,9} | (?:%2[27])?%3[ad](?:%20|\+)?(?:%2[27])? )
           | (?P<colon>  \s?:(?!:|//)[ \t]{0,40} )
           | (?P<of>     [ ](?:for|of)[ ](?:user[ ]|role[ ])?["']?[^\s:"']{1,60}["']?[ ]?[:=][ ]{0,9} )
           | (?P<value>  \\*["']?\s{0,9}[,;]\s{0,9}\\*["']?val(?:ue)?\\*["']?\s{0,9}[:=]\s{0,9} )
           | (?P<pair>   ["']\s{0,9},\s{0,9}(?=[bru]?["']) )
           | (?P<tag>    > )
           | (?P<prose>  (?:[ ](?:is|was|provided|given|used|sent|received|supplied))?[:]?[ ] )
         )
         (?= ["'`] | (?<=>)[^<\r\n] | [^\s&"',;)}\]<] )""",
    re.VERBOSE | re.IGNORECASE,
)
"""The end of a name and what stands between it and its value; `_VALUE` matches where it ends."""


def _brackets(deep: int) -> str:
    """What stands in brackets, with brackets inside it up to so deep."""
    inner = rf"|{_brackets(deep - 1)}" if deep > 1 else ""
    return rf"""[\[({{](?:[^\[\](){{}}"']|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'{inner})*+[\])}}]"""


_VALUE = re.compile(
    rf"""{_QUOTED} | [\w.]{{1,60}}\([^()\r\n]{{0,400}}\)? | {_brackets(3)} | [\[({{][^\])}}\r\n]{{0,400}}[\])}}]?
       | (?<=>)[^<\r\n]{{1,400}} | [^\s&"',;)}}\]<]+""",
    re.VERBOSE | re.IGNORECASE,
)
_VALUE_FIRST = re.compile(
    rf"""(?P<kept>\bval(?:ue)?\\*["']?\s{{0,9}}[:=]\s{{0,9}})(?>{_QUOTED}|[^\s"',;)}}\]]{{1,400}})
         (?=\s{{0,9}}[,;]\s{{0,9}}\\*["']?(?:name|key|field|header|param)\\*["']?\s{{0,9}}[:=]\s{{0,9}}
            \\*["']?(?P<name>[\w.-]{{1,60}}))""",
    re.VERBOSE | re.IGNORECASE,
)
_COMMAND = re.compile(
    r"""(?P<kept>(?:^|[\s"'\[])(?:-u|--user|--proxy-user)(?:["'],\s?["']|[ =])["']?[^\s:"']{1,100}:)[^\s"']+""",
    re.VERBOSE,
)
_TOOLS = secrets.listed("curl mysql mariadb 7z sshpass mongo login zip ldap redis-cli openssl keytool")
_OPTION = re.compile(
    r"""(?P<user>\bcurl\b{between}-u)[^\s:"']{{1,100}}:[^\s"']+
      | (?P<joined>\b(?:mysql|mariadb|7z|sshpass){between}-p["']?)[^\s"',][^\s"']*
      | (?P<apart>\b(?: (?: sshpass | mongo\w{{0,20}} | (?:docker|podman|helm|az)\b{between}login )\b{between}-p
                      | (?:zip|unzip)\b{between}-P | ldap[a-z]{{1,20}}\b{between}-w | redis-cli\b{between}-a
                      | openssl\b{between}-[kK] | keytool\b{between}-(?:store|key)pass )
           (?:["'],\s?["']|[ ])["']?)[^\s"'-][^\s"']*""".format(between=r"""[^\r\n;|&]{0,300}?[\s"']"""),
    re.VERBOSE,
)
"""Options of `_TOOLS` that are passwords."""
_CALLED = re.compile(
    rf"""(?P<kept>(?:auth|authentication|authenticate|login|credentials?|password)\(\s{{0,9}}
           {_QUOTED}\s{{0,9}},\s{{0,9}}){_QUOTED}
      | (?P<only>(?:password|secret|secretstr|secretbytes)\(\s{{0,9}})(?!["']\**["']){_QUOTED}(?=\s{{0,9}}\))
      | (?P<sql>\bidentified\s{{1,9}}(?:with\s{{1,9}}\w{{1,40}}\s{{1,9}})?(?:by|as)\s{{1,9}}){_QUOTED}""",
    re.VERBOSE | re.IGNORECASE,
)
_SESSION = re.compile(
    r"""(?P<kept>(?:session_?id|phpsessid|jsessionid|connect\.sid)["']?\s?[:=]\s?(?:["']|[bu]["'])?)
        (?![0-9]{1,20}\b(?!-))[^\s;,&"'<>()\[\]{}]{6,}
      | (?P<named>(?<![a-z0-9])(?:session|sid|assertion|saml(?:response|request|art))
           (?:\s?=\s?|["']\s?[:=]\s?|["']\s?,\s?(?=b?["']))(?:["']|[bu]["'])?)
        (?=[a-z0-9%]{0,60}[^\W\d_])(?=[^\s;,&"'<>()\[\]{}]{0,60}[0-9])[^\s;,&"'<>()\[\]{}]{8,}""",
    re.VERBOSE | re.IGNORECASE,
)
_TWILIO = re.compile(secrets.TWILIO_KEY)
_REFUSED_INPUT = re.compile(
    r"""\[type=[\w.]{1,80},\ input_value=(?P<value>[^\r\n]{1,2000}?)(?=,\ input_type=)
      | ["']input["']\s?:\s?(?=["'])(?P<repr>"(?:\\.|[^"\\\r\n])*+"?|'(?:\\.|[^'\\\r\n])*+'?)""",
    re.VERBOSE,
)
"""What a validator did not accept, behind the place where it stood and why."""
_PLACE = 300
"""How far back what stands before a value, or a value before its name, is looked for."""
_PLACE_WORD = re.compile(r"[\w-]+")
_AS = re.compile(
    r"[ ]as[ ](?:[a-z]{1,10}[ ]){0,2}"
    r"(?i:password|passwd|passphrase|passcode|token|secret|credentials?|(?:api|access)[ _-]?key)\b"
)
_SHAPED = re.compile(
    rf"""(?P<kept>\b[Bb]earer\s+)(?!(?i:auth|credential|challenge|token|scheme))[A-Za-z0-9._~+/=-]{{8,}}
      | (?P<basic>\b[Bb]asic\s+)(?=[A-Za-z+/]{{0,200}}[0-9=])[A-Za-z0-9+/=]{{8,}}
      | {secrets.JWT} | {secrets.AWS_KEY} | (?<![\w-]){secrets.PROVIDER_KEYS}
    """,
    re.VERBOSE,
)

_KNOWN_VALUES = secrets.listed("none null nil undefined true false yes no on off empty unset … hidden redacted")
"""Values that say there is none, or that it is hidden already."""
_PROSE = secrets.listed("""
    a an the this that it its is was are were be been being has have had do does did not no none must may can cannot
    could should shall will would need needs required requires missing invalid incorrect wrong expired revoked unknown
    unset empty denied refused rejected failed failure failing error ok valid good bad too at in on of for from to by
    with without and or if when while because please enter use used using only just changed reset set updated created
    rotated deleted unsupported unexpected expected expecting found given length min minimum max maximum least more less
    than field value string text type types str int bytes bool float any optional union object list dict tuple integer
    number varchar char secretstr secretbytes literal mapping self cls authentication authorization authenticated login
    see check try again hidden secret password contains contain you your we our i they cipher hash hashing eof end
    identifier
""")
"""Words after `password:` that go on in a sentence, or name a type: no password is one of them."""
_LETTERS_AND_DIGITS = re.compile(r"(?=\S{0,60}[0-9])(?=\S{0,60}[A-Za-z])\S{6,}")
_NAME_CHARS = "_.-" + ascii_letters + digits
_PREFIX = re.compile(r"\A[bru]{1,2}(?=[\"'])", re.IGNORECASE)
_PAIR_OPENED = re.compile(r"""[\[({,]\s?[\[(]\s?[bru]?["']\Z""")
_TUPLE_OPENED = re.compile(r"""\(\s?[bru]?["']\Z""")
_LIST_OPENED = re.compile(r"""\[\s?[bru]?["']\Z""")
_CLOSED = re.compile(r"\s?,?\s?[\])]")
_LINE = re.compile(r"""[^\r\n"'<>]+""")
_TAG_OPENED = re.compile(r"<(?:[\w-]{1,40}:)?\Z")


def _after_names(text: str) -> str:
    """Hides the value after each name that announces a secret, as `secrets.names_secret` knows them."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that becomes two would shift what follows
        lowered = "".join(char.lower() if char.isascii() else char for char in text)
    parts, at = [], 0
    for stem in (_STEMS if text.isascii() else _ALL_STEMS).finditer(lowered):
        if (
            stem.start() >= at
            and (found := _ANNOUNCED.match(text, stem.end()))
            and (value := _secret(stem.start(), found))
        ):
            parts += [text[at : value.start()], REDACTED]
            at = value.end()
    return "".join((*parts, text[at:])) if parts else text


def _secret(start: int, found: re.Match[str]) -> re.Match[str] | None:
    """The value after a name with a stem at `start`, if the name announces a secret and the value is one.

    The value is matched last: it may be as long as the text, and the text may be full of other names.
    (tests/unit/test_redaction.py, test_a_value_is_examined_once)
    """
    text = found.string
    before = text[max(start - 80, 0) : start]
    front = before[len(before.rstrip(_NAME_CHARS)) :]
    if not front and before.endswith(" ") and (words := _TWO_WORDS.search(before)):
        front = words[0]
    before = before.removesuffix(front)
    form = next(form for form in _FORMS if found[form] is not None)
    name = front + text[start : found.start(form)]
    if secrets.names_secret(name) not in ("secret", "number"):
        return None
    is_plain = form in ("colon", "of") or (form == "given" and text[found.end()] not in "\"'`(")
    if is_plain and name.lower() == "auth":
        return None
    value = _VALUE.match(text, found.end())
    if value is None or not (
        _is_secret(value[0], name, form, before) or (form == "pair" and _ends_pair(value, before))
    ):
        return None
    if is_plain and name.lower().endswith("phrase") and text[found.end() - 1].isspace():
        return _LINE.match(text, found.end()) or value  # of several words
    return value


def _ends_pair(value: re.Match[str], before: str) -> bool:
    """Whether a value and the name before it are all there is in brackets: `('password', 'X')`."""
    bare = _bare(value[0])
    if not bare or bare in _PROSE or secrets.names_secret(bare) or not _CLOSED.match(value.string, value.end()):
        return False
    in_a_list = _LIST_OPENED.search(before) is not None and _LETTERS_AND_DIGITS.match(bare) is not None
    return in_a_list or _TUPLE_OPENED.search(before) is not None


def _bare(value: str) -> str:
    return _PREFIX.sub("", value).strip("\\\"'`[](){}<>.!?:,*").lower()


def _is_secret(value: str, name: str, form: str, before: str) -> bool:
    """Whether the value after a name that announces a secret is one, by its form and what stands before the name."""
    bare = _bare(value)
    if not bare or bare in _KNOWN_VALUES or (bare.isdecimal() and name.endswith("tokens")):
        return False
    is_option, in_quotes = name.startswith("-"), value[0] in "\"'`"
    match form:
        case "quoted" | "value" | "given":
            return True
        case "tag":
            return _TAG_OPENED.search(before) is not None
        case "pair":
            return is_option or _PAIR_OPENED.search(before) is not None
        case "prose":
            looks_secret = in_quotes or _LETTERS_AND_DIGITS.match(bare) is not None
            return (is_option and value[0] != "-") or (looks_secret and not before.lower().endswith(_PARSERS))
        case _:
            return bare not in _PROSE and not before.lower().endswith(_PARSERS)


_FORMS = ("quoted", "given", "colon", "of", "value", "pair", "tag", "prose")
_PARSERS = ("unexpected ", "illegal ", "first ", "second ", "third ", "next ", "last ", "each ")
"""Words before a parser's token, or a pass over something."""

_Finder = Callable[[str], str]


def _before_names(text: str) -> str:
    """Hides what is said to be used as a password: `tried "hunter2" as the password`."""
    parts, at = [], 0
    for found in _AS.finditer(text):
        end = found.start()
        begins, first = text[end - 1 : end], max(at, end - _PLACE)
        begins = begins if begins in ("'", '"', "`") else " "
        start = text.rfind(begins, first, end - 1)
        start = first if start < 0 else start + (begins == " ")
        value = text[start:end]
        if _is_secret(value, "password", "prose", "") and not secrets.names_secret(_bare(value)):
            parts += [text[at:start], REDACTED]
            at = end
    return "".join((*parts, text[at:])) if parts else text


def _in_refused_input(text: str) -> str:
    """Hides what a validator of settings or requests shows of a value, where the field's name announces a secret."""
    parts, at = [], 0
    for found in _REFUSED_INPUT.finditer(text):
        which = "repr" if found["value"] is None else "value"
        before = text[max(found.start() - _PLACE, at) : found.start()]
        if which == "repr":
            before = before[max(before.rfind("loc"), 0) :]
        if any(secrets.names_secret(word) for word in _PLACE_WORD.findall(before)):
            parts += [text[at : found.start(which)], REDACTED]
            at = found.end(which)
    return "".join((*parts, text[at:])) if parts else text


def _twilio_hidden(text: str) -> str:
    return _TWILIO.sub(REDACTED, text) if "SK" in text else text


def _replacing(pattern: re.Pattern[str]) -> _Finder:
    def replaced(found: re.Match[str]) -> str:
        kept = next((part for name, part in found.groupdict().items() if part is not None and name != "name"), "")
        if "name" in pattern.groupindex and secrets.names_secret(found["name"]) is None:
            return found[0]
        return kept + REDACTED

    return partial(pattern.sub, replaced)


_replace_options = _replacing(_OPTION)


def _in_options(text: str) -> str:
    """Hides passwords among the options of commands. Most options are of others: the names are looked for first."""
    return _replace_options(text) if any(tool in text for tool in _TOOLS) else text


_FINDERS: tuple[tuple[_Finder, tuple[str, ...]], ...] = (
    (_replacing(_PRIVATE_KEY), ("-----begin",)),
    (_replacing(_IN_A_URL), ("@",)),
    (_replacing(_SIGNED), ("sig", "hmac", "credential=", "auth=", "key=", "code=")),
    (_replacing(_HOOK), secrets.HOOK_MARKS),
    (_replacing(_HEADER), ("authorization", "cookie")),
    (_replacing(_COMMAND), (" -u", "--user", "--proxy-user", "'-u'", '"-u"')),
    (_in_options, (" -", "'-", '"-')),
    (_replacing(_CALLED), ("auth(", "ticat", "login(", "credential", "word(", "secret", "identified")),
    (_replacing(_SESSION), ("session", "sid", "saml", "assertion")),
    (_in_refused_input, ("input",)),
    (_before_names, (" as ",)),
    (_after_names, ("pass", "pw", "secret", "token", "key", "auth", "credential", "otp", "bearer", "kennwort", "senha",
                    "contrase", "парол", "phrase", "connection", "cvv", "cvc", "ssn", "card")),
    (_replacing(_VALUE_FIRST), ("val",)),
    (_replacing(_SHAPED), ("earer", "asic", "eyj", "akia", "asia", *(mark.lower() for mark in secrets.PROVIDER_MARKS))),
    (_twilio_hidden, ("sk",)),
)  # fmt: skip
"""Each with what is in every text where it finds something: looking for that first is many times quicker."""
_CUT_OFF = re.compile(r"\S{1,400}\Z")
_CUT_ON = re.compile(r"\A\S{1,400}")


def without_secrets(text: str) -> str:
    """The text with `[redacted]` in place of secrets. Hides too much rather than too little.

    Call it before a text is cut: half a secret is not found any more.
    """
    if len(text) > 2 * _WINDOW:
        head, tail = _CUT_OFF.sub("", text[:_WINDOW]), _CUT_ON.sub("", text[-_WINDOW:])
        return _hidden(head) + "." * (len(text) - len(head) - len(tail)) + _hidden(tail)
    return _hidden(text)


def value_without_secrets(value: Any) -> Any:
    """JSON as people may see it: without what has no business in a payload, and without secrets inside its texts."""
    shown, _ = secrets.redact({"": value})
    return _texts_hidden(shown[""])


def _texts_hidden(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return _hidden(value)  # whole, however long: programs read results, and a blanked middle would be wrong data
    if depth > _DEEPEST:
        return REDACTED
    if isinstance(value, dict):
        return {_hidden(key): _texts_hidden(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts_hidden(item, depth + 1) for item in value]
    return value


def _hidden(text: str) -> str:
    lowered = text.lower()
    for finder, marks in _FINDERS:
        for mark in marks:
            if mark in lowered:
                text = finder(text)
                break
    return text
