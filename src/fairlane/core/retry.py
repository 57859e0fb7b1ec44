"""When a failed job runs again: a policy as a value."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fairlane.errors import InvalidOption

MAX_ATTEMPTS = 32_767
LONGEST_DELAY_S = 10 * 365 * 86_400.0
"""Ten years: past this an instant may not fit a store's timestamps."""


class Retry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How often to try and how long to wait between.

    Either `delays`, an exact list whose last entry repeats, or `base_s` growing by `factor` up to `cap_s`, spread by
    `jitter` (0.2: ±20 %). `max_attempts` None leaves the number to the next policy in line.
    """

    max_attempts: int | None = None
    delays: tuple[float, ...] | None = None
    base_s: float = 2.0
    factor: float = 2.0
    cap_s: float = 300.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            _require_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.delays is not None:
            msgspec.structs.force_setattr(self, "delays", _require_delays(self.delays))
        _require_number("base_s", self.base_s, 0.0, LONGEST_DELAY_S)
        _require_number("factor", self.factor, 1.0, 1e6)
        _require_number("cap_s", self.cap_s, 0.0, LONGEST_DELAY_S)
        _require_number("jitter", self.jitter, 0.0, 1.0)

    def delay_s(self, failed: int, fraction: float) -> float:
        """Seconds to wait after the `failed`-th failure (from 1); `fraction` in [0, 1) picks the place in the spread.

        Never above the cap, and never shorter after a later failure.
        """
        if self.delays is not None:
            return self.delays[min(max(failed, 1), len(self.delays)) - 1]
        full = self._full_delay_s(max(failed, 1))
        # At the cap the spread shrinks to what lies below it. Cutting off instead would send half of
        # all long-failing jobs back in the same instant. (tests/unit/test_retry.py)
        low, high = full * (1.0 - self.jitter), min(full * (1.0 + self.jitter), self.cap_s)
        return min(low * (1.0 - fraction) + high * fraction, high)

    def _full_delay_s(self, failed: int) -> float:
        if self.base_s == 0.0:
            return 0.0
        try:
            return min(self.base_s * self.factor ** (failed - 1), self.cap_s)
        except OverflowError:
            return self.cap_s

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def parse(cls, raw: bytes | str | msgspec.Raw) -> Retry:
        """Read what `to_json` wrote."""
        try:
            return msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidOption("retry", bytes(raw) if isinstance(raw, msgspec.Raw) else raw, str(error)) from None


def _require_number(option: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InvalidOption(option, value, f"a number from {low:g} to {high:g}")


def _require_whole(option: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(option, value, f"a whole number from {low} to {high}")


def _require_delays(delays: object) -> tuple[float, ...]:
    if not isinstance(delays, (tuple, list)) or not delays:
        raise InvalidOption("delays", delays, "a list of seconds with at least one entry")
    for delay in delays:
        _require_number("delays", delay, 0.0, LONGEST_DELAY_S)
    return tuple(float(delay) for delay in delays)


DEFAULT_RETRY = Retry()
RATE_LIMITED_RETRY = Retry(base_s=60.0)
DOUBLING = Retry(base_s=1.0, jitter=0.1)
"""1, 2, 4 … 300 s, ±10 %."""
