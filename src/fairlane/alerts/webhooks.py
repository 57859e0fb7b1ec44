"""Sends signed requests to webhooks, and checks where they may go.

Addresses: the public internet, and internal networks only where settings allow them. The name is resolved once, every
address is checked, and the connection goes to a checked address: a name that changes afterwards has no effect.

Signatures follow the Standard Webhooks convention: id, timestamp and body under one HMAC-SHA256. A receiver checks
them with `is_signed`.

    webhook-id         the same for every try of one message: a receiver can recognise duplicates
    webhook-timestamp  seconds since 1970, of this try
    webhook-signature  v1,<base64 of HMAC-SHA256(secret, "<id>.<timestamp>.<body>")>
"""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple

from fairlane.client.settings.alerts import WebhookSettings, without_path
from fairlane.core.tracebacks import without_frames
from fairlane.errors import AddressRefused, NonRetryable
from fairlane.http import open_transport, send

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
        "168.63.129.16/32",  # A cloud's internal service, inside a public range.
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
"""NAT64: the last 32 bits are an IPv4 address."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_ENDS_IN_NUMBER = re.compile(r"(^|\.)([0-9]+|0[xX][0-9A-Fa-f]*)\.?$")
"""Some programs read it as an IPv4 address in decimal, octal, hexadecimal or short form, others as a name."""


class CheckedTarget(NamedTuple):
    """A URL whose addresses were checked."""

    url: httpx.URL
    """As given, with its name in ASCII."""
    addresses: tuple[str, ...]
    """The addresses of the name, all checked."""


async def find_target(url: str, allow: Iterable[str] = (), resolve: Resolve | None = None) -> CheckedTarget:
    """Resolve a URL's host and check every address; raises `AddressRefused`, or OSError for an unknown name."""
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
        raise AddressRefused(where, "its name resolves to no address")
    for text in found:
        address = read_address(text)
        is_allowed = any(address in network for network in networks)
        if not is_allowed and not is_public(address):
            raise AddressRefused(where, f"{address} is internal; name its network in `allow` if that is meant")
        if not is_allowed and parsed.scheme != "https":
            raise AddressRefused(where, "http is not private; use https")
    return CheckedTarget(parsed, found)


def _is_plain(host: str) -> bool:
    try:
        return str(ip_address(host)) == host or ":" in host
    except ValueError:
        return False


def read_address(text: str) -> Address:
    """Parse an address without its zone; an IPv4-mapped IPv6 address becomes IPv4."""
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


TOLERANCE_S = 300.0
"""Older or newer requests are refused: a recorded request cannot be replayed later."""
_LONGEST_TIMESTAMP = 12
"""Digits; `int` raises an error for thousands of them."""


def signed_headers(secret: str, id: str, at: datetime, body: bytes) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{_signature(secret, id, timestamp, body)}",
    }


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Whether a received request was signed with this secret, and recently. Header names in lower case."""
    message, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if (
        not timestamp.isdecimal()
        or len(timestamp) > _LONGEST_TIMESTAMP
        or abs(now.timestamp() - int(timestamp)) > TOLERANCE_S
    ):
        return False
    expected = _signature(secret, message, timestamp, body).encode()
    given = [part.removeprefix("v1,") for part in headers.get("webhook-signature", "").split() if part[:3] == "v1,"]
    return any(hmac.compare_digest(expected, one.encode()) for one in given)


def _signature(secret: str, id: str, timestamp: str, body: bytes) -> str:
    signed = hmac.digest(_key(secret), f"{id}.{timestamp}.".encode() + body, "sha256")
    return b64encode(signed).decode()


def _key(secret: str) -> bytes:
    """By the convention `whsec_` is followed by base64; any other secret is used as it is."""
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except NotBase64:
            return secret.encode()
    return secret.encode()


WITHIN_S = 5.0
MOST_ADDRESSES = 3


class NotDelivered(Exception):
    """The receiver refused a request; its status says whether a retry may succeed."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        self.status_code, self.headers = status, headers
        super().__init__(f"{without_path(url)} answered {status}")


async def post(webhook: WebhookSettings, id: str, body: bytes, at: datetime, *, resolve: Resolve | None = None) -> None:
    """Send one signed request within five seconds. Follows no redirect, and reads only the status of the answer.

    Raises `AddressRefused`, `NotDelivered`, TimeoutError, or a network error.
    """
    import httpx

    try:
        async with asyncio.timeout(WITHIN_S):
            target = await find_target(webhook.url, webhook.allow, resolve)
            headers = {
                "content-type": "application/json",
                "user-agent": "fairlane",
                "host": target.url.netloc.decode("ascii"),
                **signed_headers(webhook.secret, id, at, body),
            }
            status, answered = await _sent(target.url, target.addresses[:MOST_ADDRESSES], headers, body)
    except (httpx.HTTPError, TimeoutError) as error:
        raise without_frames(error) from error.__cause__
    if 300 <= status < 400:
        raise NonRetryable(f"{without_path(webhook.url)} answered {status}; redirects are not followed")
    if not 200 <= status < 300:
        raise NotDelivered(webhook.url, status, answered)


async def _sent(
    url: object, addresses: tuple[str, ...], headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str]]:
    import httpx

    assert isinstance(url, httpx.URL)
    name = {"sni_hostname": url.raw_host.decode("ascii")}  # certificates are checked against the name
    async with open_transport() as transport:
        for left, address in enumerate(addresses, 1 - len(addresses)):
            there = url.copy_with(host=address.partition("%")[0])
            try:
                response = await send(
                    transport, "POST", there, WITHIN_S, headers=headers, content=body, extensions=name
                )
            except httpx.ConnectError:
                if left == 0:
                    raise
                continue
            await response.aclose()
            after = response.headers.get("retry-after")
            return response.status_code, {} if after is None else {"retry-after": after}
    raise AssertionError("a target has at least one address")
