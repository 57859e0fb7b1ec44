"""Short ids of jobs and workflows: the number that listings print, or a part of the id, as a person types them.

Ids begin with the time, so that those of one day begin alike: the number is the short id, and every store finds it by
an index. A part of an id means a record only where no other one can be meant: if it is the last block of a UUIDv7,
which is random, or if there are so few records that all of them were looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from fairlane.client.steps import Steps
from fairlane.core.ids import Seq
from fairlane.core.ops import MAX_PAGE
from fairlane.errors import InvalidOption, NotFound

NEWEST = 1_000
"""Records among which a part of an id is looked for."""
NUMBER = re.compile(r"[1-9][0-9]{0,10}", re.ASCII)
"""Shorter than the last block of an id, whose first block begins with 0."""
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_PART_OF_ID = re.compile(r"[0-9a-f][0-9a-f-]{5,35}")
_LAST_BLOCK = re.compile(r"[0-9a-f]{12}")


class Numbered(Protocol):
    @property
    def seq(self) -> Seq: ...

    @property
    def id(self) -> UUID: ...


R = TypeVar("R", bound=Numbered)
Pages = Callable[[Seq | None, int], Steps[tuple[Sequence[R], Seq | None]]]
"""A page of records, newest first, before one and of a size; and where the next page begins."""


def is_short_id(text: str) -> bool:
    """Whether the text may be an id, a part of one or a number; nothing is looked up."""
    return bool(NUMBER.fullmatch(text.lower()) or _PART_OF_ID.fullmatch(text.lower()))


def id_meant(noun: str, text: str, pages: Pages[R]) -> Steps[UUID]:
    """The id that a person means; one in full is not looked up.

    `NotFound` if there is none, `InvalidOption` if a part fits several, with the candidates, or may fit older ones.
    """
    if not is_short_id(text):
        raise InvalidOption("ID", text, f"a {noun}'s id or number, as `fairlane {noun}s list` shows them")
    text = text.lower()
    if _ID.fullmatch(text):
        return UUID(text)
    found: Sequence[R] = ()
    are_all = True
    if NUMBER.fullmatch(text):
        newest, _ = yield from pages(Seq(int(text) + 1), 1)
        found = [record for record in newest if record.seq == int(text)]
    if not found and _PART_OF_ID.fullmatch(text):
        found, are_all = yield from _of_newest(text, pages)
    if len(found) > 1:
        some = ", ".join(f"{record.seq} ({record.id})" for record in found[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise InvalidOption("ID", text, f"one {noun}, and it may be {some}{more}")
    if not found:
        where = f"none has this number, and none of the newest {NEWEST:,} an id like that"
        raise NotFound(f'no {noun} "{text}": {where}; give the id in full')
    if not are_all and not _is_random_block(text, found[0].id):
        sure = f"the number or the id in full: there are more than {NEWEST:,} {noun}s"
        raise InvalidOption("ID", text, f"{sure}, and older ones may begin or end like {found[0].seq} ({found[0].id})")
    return found[0].id


def _of_newest(part: str, pages: Pages[R]) -> Steps[tuple[list[R], bool]]:
    """Those of the newest with this part, and whether there are no older ones."""
    found: list[R] = []
    before: Seq | None = None
    for _ in range(NEWEST // MAX_PAGE):
        records, before = yield from pages(before, MAX_PAGE)
        found += [record for record in records if str(record.id).startswith(part) or str(record.id).endswith(part)]
        if before is None:
            break
    return found, before is None


def _is_random_block(part: str, id: UUID) -> bool:
    """Whether the part is 48 random bits, which no second id has. Of other versions the block may be a constant."""
    return id.version == 7 and _LAST_BLOCK.fullmatch(part) is not None and str(id).endswith(part)
