"""Where a webhook may lead: to the public internet, and to internal networks only where settings name them.

The name is resolved once, every address it has is checked, and the connection goes to the address that was checked: a name that
points elsewhere a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from fairlane.client.settings.alerts import without_path
from fairlane.errors import AddressRefused

if TYPE_CHECKING:
    import httpx

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Iterable[str]]]

_CLOSED_V4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own service, in the middle of public addresses
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_OPEN_V6 = IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48")
)
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""An IPv4 address as networks without IPv4 see it: its last 32 bits."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_ENDS_IN_NUMBER = re.compile(r"(^|\.)([0-9]+|0[xX][0-9A-Fa-f]*)\.?$")
"""What some take for an IPv4 address in decimal, octal, hexadecimal or short form, and others for a name."""


class Target(NamedTuple):
    """An address that was checked, ready to be connected to."""

    url: httpx.URL
    """As given, its name in the form the network knows."""
    addresses: tuple[str, ...]
    """What the name stands for; every one may be connected to."""


async def find_target(url: str, allow: Iterable[str] = (), resolve: Resolve | None = None) -> Target:
    """Resolve a URL's host and check every address; raises `AddressRefused`, or OSError where the name is not known now."""
    import httpx

    where = without_path(url)
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise AddressRefused(where, "it has characters no address has")
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, UnicodeError, ValueError):
        raise AddressRefused(where, "it cannot be read") from None
    if parsed.scheme not in ("http", "https") or not host:
        raise AddressRefused(where, "expected https:// and a host")
    if parsed.userinfo:
        raise AddressRefused(where, "it has a user name or password in it")
    if not _HOST.fullmatch(host) or (_ENDS_IN_NUMBER.search(host) and not _is_plain(host)):
        raise AddressRefused(where, "its host is spelled in a way that programs read differently")
    networks = tuple(ip_network(network) for network in allow)
    port = parsed.port or (443 if parsed.scheme == "https" else 80)
    found = tuple(dict.fromkeys(await (resolve or _resolve)(host.removesuffix("."), port)))
    if not found:
        raise AddressRefused(where, "its name stands for no address")
    for text in found:
        address = read_address(text)
        is_allowed = any(address in network for network in networks)
        if not is_allowed and not is_public(address):
            raise AddressRefused(where, f"{address} is internal; name its network in `allow` if that is meant")
        if not is_allowed and parsed.scheme != "https":
            raise AddressRefused(where, "http is not private; use https")
    return Target(parsed, found)


def _is_plain(host: str) -> bool:
    try:
        return str(ip_address(host)) == host or ":" in host
    except ValueError:
        return False


def read_address(text: str) -> Address:
    """An address without its zone; an IPv4 address written as IPv6 is what it is."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_V4)
    if address in _TRANSLATED:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _OPEN_V6 and not any(address in network for network in _CLOSED_V6)


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]
