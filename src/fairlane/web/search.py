"""The search of a listing: qualified words such as `status:failed type:mail.send`, kept in the address.

Beside the fields of the listing a search takes `tenant:`, and `state:` means `status:`. Searches of jobs also look into
contents: `args.user.id:42`, `error:refused`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from fairlane.api.problems import Problem
from fairlane.client.admin.filters import filter_words
from fairlane.errors import FairlaneError, InvalidOption
from fairlane.web.formats import quoted
from fairlane.web.page import Page

_INSTANTS = {"enqueued_from", "enqueued_before", "started_before"}
_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Search(Struct, frozen=True, kw_only=True):
    text: str
    where: Any = None
    """The filter; None if the text was not accepted."""
    tenant: str | None = None
    words: tuple[str, ...] = ()
    """Each word as it was written."""
    problem: str | None = None
    args: dict[str, str] = {}
    error: str | None = None

    @property
    def asks_for_contents(self) -> bool:
        return bool(self.args) or self.error is not None

    def required(self) -> Any:
        """The filter; raises what was wrong with the text."""
        if self.problem is not None:
            raise Problem(422, "invalid_search", f"{self.problem}; nothing was changed")
        return self.where

    def without(self, word: str) -> str:
        """The text of this search without one of its words."""
        return " ".join(quoted(other) for other in self.words if other != word)

    def with_only(self, name: str, value: str | None) -> str:
        """The text of this search with another value of one field; None: without it."""
        kept = [quoted(word) for word in self.words if _name(word) != name]
        return " ".join([*kept, *([] if value is None else [f"{name}:{quoted(value)}"])])

    def value(self, name: str) -> str | None:
        return next((word.partition(":")[2] for word in self.words if _name(word) == name), None)


def search(
    text: str,
    known: Mapping[str, Any],
    make: Callable[[Mapping[str, Any]], Any],
    page: Page,
    *,
    may_see_contents: bool | None = None,
) -> Search:
    """Read a search. A mistake in it is reported beside the box, and lists nothing.

    `may_see_contents` allows or refuses `args.…:` and `error:`; None: the listing does not have them.
    """
    clock, tenant = page.app.runtime.clock, page.tenant
    try:
        words = tuple(shlex.split(text))
        inside = [] if may_see_contents is None else [word for word in words if _asks_for_contents(word)]
        if inside and not may_see_contents:
            raise InvalidOption("filter", inside[0], "no args. and error: your roles do not show what they look into")
        plain = [word for word in words if word not in inside]
        given = filter_words([quoted(_canonical(word)) for word in plain], (*known, "tenant"))
        named = given.pop("tenant", None)
        if named is not None and tenant is not None and named != tenant:
            raise InvalidOption("filter", f"tenant:{named}", f"the tenant chosen above, {tenant}")
        for name in _INSTANTS & given.keys():
            given[name] = _instant(name, given[name], clock.now())
        contents = dict(word.partition(":")[::2] for word in inside)
        error = contents.pop("error", None)
        args = {path.removeprefix("args."): value for path, value in contents.items()}
        return Search(text=text, where=make(given), tenant=named or tenant, words=words, args=args, error=error)
    except FairlaneError as error:
        return Search(text=text, tenant=tenant, problem=str(error))
    except ValueError as error:
        return Search(text=text, tenant=tenant, problem=f"unbalanced quotes ({error})")


def _canonical(word: str) -> str:
    name, colon, value = word.partition(":")
    return f"{'status' if name.lower() == 'state' else name}{colon}{value}"


def _asks_for_contents(word: str) -> bool:
    return word.startswith(("args.", "error:"))


def _name(word: str) -> str:
    return _canonical(word).partition(":")[0].replace("-", "_").lower()


def _instant(name: str, text: str, now: datetime) -> datetime:
    """An instant as ISO 8601, or a span before now: `enqueued_from:2h`."""
    if text[:-1].isdecimal() and text[-1] in _SPANS and len(text) < 10:
        return now - timedelta(seconds=int(text[:-1]) * _SPANS[text[-1]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidOption(name, text, "2h, 3d or an instant such as 2026-01-31T12:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)
