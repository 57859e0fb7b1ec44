"""When credentials were last used, told to the store now and then."""

from __future__ import annotations

from uuid import UUID

from fairlane.client.app import Fairlane
from fairlane.core.ops import SeeCredentials

EVERY_S = 60.0
MOST = 1_000


class LastUse:
    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._seen: set[UUID] = set()
        self._told_s: float | None = None

    async def note(self, id: UUID) -> None:
        """Told at once for the first one, then at most once in `EVERY_S`; what is beyond `MOST` meanwhile is forgotten."""
        if len(self._seen) < MOST:
            self._seen.add(id)
        now_s = self._app.clock.monotonic()
        if self._told_s is not None and now_s - self._told_s < EVERY_S:
            return
        seen, self._seen, self._told_s = tuple(self._seen), set(), now_s
        await self._app.access.arun(SeeCredentials(ids=seen))
