"""A limit on wrong guesses, for each address they come from."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from fairlane.core.clock import Clock

BURST = 20
"""Wrong guesses before an address has to wait."""
REFILL_S = 3.0
"""Seconds for one more guess."""
MOST_ADDRESSES = 10_000


class FailedGuesses:
    """Token buckets that only failures empty. Bounded: the address that failed longest ago is forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Guesses left, and as of when."""

    def wait_s(self, address: str) -> float:
        """How long this address has to wait before the next guess is looked at; 0: not at all."""
        left = self._left(_network(address))
        return 0.0 if left >= 1.0 else (1.0 - left) * REFILL_S

    def note(self, address: str) -> None:
        network = _network(address)
        self._buckets[network] = (self._left(network) - 1.0, self._clock.monotonic())
        self._buckets.move_to_end(network)
        while len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)

    def _left(self, network: str) -> float:
        left, as_of = self._buckets.get(network, (float(BURST), 0.0))
        return min(float(BURST), left + (self._clock.monotonic() - as_of) / REFILL_S)


def _network(address: str) -> str:
    """Whoever has one IPv6 address has the 2**64 beside it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
