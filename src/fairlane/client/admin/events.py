"""`app.events`: past events, in the order in which they became visible."""

from __future__ import annotations

from fairlane.client.admin.filters import whole_number
from fairlane.client.context import in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.names import check_words
from fairlane.core.ops import EventPage, ReadEvents

MOST_EVENTS = 1_000


class EventAdmin(Verbs):
    """Methods for events."""

    __slots__ = ()

    def _list(
        self,
        *,
        after: int = 0,
        kinds: tuple[str, ...] = (),
        tenant: str | int | None = None,
        limit: int = 200,
        watch: bool = False,
    ) -> Steps[EventPage]:
        """Events after `after`, oldest first; pass the last one's id as `after` for the next page, and none is missed.

        `watch` registers a watcher for half a minute: workers then also write events that serve only live views.
        """
        size = whole_number("limit", limit, MOST_EVENTS)
        for kind in kinds:
            check_words("kind", kind)
        return (
            yield from ask(ReadEvents(scope=in_scope(tenant), after=after, kinds=tuple(kinds), limit=size, watch=watch))
        )

    list, alist = both(_list, Right.READ)
