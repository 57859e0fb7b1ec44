"""Clears a payload's text of anything sensitive without walking over its values: one look for each sort of thing.

`is_clean` never clears what `secrets.find` would find, but it doubts many a text that is harmless: `find` looks at
those. tests/unit/test_clean_text.py holds both against each other. A walk over every value of 50 KB took ten times as
long.

The text is as the codec writes it: no space between tokens, and nothing escaped in a string but quotes, backslashes and
control characters. A pattern here therefore has no condition on what stands before a match: that may be the letter of
an escape.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fairlane.core.payload.secrets import CARD_LIKE, may_name_secret

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
    b"K": rb"K(?<=PRIVATE K)EY",
    b"@": rb'://(?:[^\s/@"\\]|\\.)*+@',
}
_MARK = re.compile(rb"[-_.AK@ ]").search
_SHORT = 256
"""Characters; in so short a text one search for all marks is quicker than one for each."""
# A search by pattern takes half of the time that `in` takes for a text of many different characters.
_PAIRS, _BEARER, _DAPI = (re.compile(pattern).search for pattern in (rb'\[\["', b"earer ", b"dapi"))
_SEARCHES = tuple((mark, re.compile(pattern).search) for mark, pattern in _MARKED.items())
_CARD = re.compile(CARD_LIKE.pattern.encode())
_DIGITS = bytes(ord("0") if chr(code) in "0123456789" else ord(" ") for code in range(256))
_FEWEST_DIGITS = b"0" * 13


def is_clean(text: bytes) -> bool:
    """Whether the text of a payload certainly holds nothing sensitive; False: it may."""
    # Lists of two may hold a name and its value.
    return _PAIRS(text) is None and not _may_tell(text) and not _may_hold_card(text) and _are_harmless(_keys(text))


def _may_tell(text: bytes) -> bool:
    """Whether a value may give itself away: a token, a key, an address with a password."""
    if len(text) < _SHORT and _MARK(text) is None:
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
