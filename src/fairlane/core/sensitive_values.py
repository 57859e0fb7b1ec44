"""Values that give themselves away, whatever their key is called."""

from __future__ import annotations

import re

REDACTED = "[redacted]"

_SHORTEST = 8
"""No telling value is shorter: `ab://:p@`."""

_TELLING = re.compile(
    r"""
      (?P<private_key> -----BEGIN\ [A-Z0-9 ]{0,30}PRIVATE\ KEY )
    | (?P<jwt>         (?<![\w-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{8,} )
    | (?P<aws>         \b(?:AKIA|ASIA)[0-9A-Z]{16}\b )
    | (?P<provider>    \b(?:gh[pousr]_[A-Za-z0-9]{36} | github_pat_[A-Za-z0-9_]{60} | glpat-[A-Za-z0-9_-]{20}
                         | xox[abprs]-[A-Za-z0-9-]{10} | [sr]k_live_[A-Za-z0-9]{16} | AIza[A-Za-z0-9_-]{35}
                         | fl_[A-Za-z0-9_-]{43}) )
    | (?P<bearer>      \b[Bb]earer\ [A-Za-z0-9._~+/-]{16} )
    | (?P<url>         \b[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/:@]{0,100}:[^\s/@]{1,100}@ )
    """,
    re.VERBOSE,
)
_MARKS = ("://", "earer ", "-----BEGIN", "eyJ", "AKIA", "ASIA", "gh", "glpat-", "xox", "k_live_", "AIza", "fl_")
"""One of them is in every telling value: looking for these first is several times quicker."""

_WHY = {
    "private_key": "a private key",
    "jwt": "a JSON web token",
    "aws": "an AWS access key id",
    "provider": "a provider's access token",
    "bearer": "a bearer token",
    "url": "a password inside a URL",
}

_CARD_LIKE = re.compile(r"(?<![\w.+-])[2-6][0-9](?:[ -]?[0-9]){11,17}(?![\w]|[-.][0-9])")
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
        if not is_id and any(_is_card(match.group()) for match in _CARD_LIKE.finditer(value)):
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
