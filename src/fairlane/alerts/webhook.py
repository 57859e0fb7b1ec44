"""Sends one signed request to a webhook. Follows nothing, waits no longer than five seconds, reads no answer but its status."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from fairlane.alerts.addresses import Resolve, find_target
from fairlane.alerts.signatures import signed_headers
from fairlane.client.settings.alerts import WebhookSettings, without_path
from fairlane.errors import NonRetryable

WITHIN_S = 5.0
MOST_ADDRESSES = 3


class NotDelivered(Exception):
    """The receiver did not take a request; its status says whether it may take it later."""

    def __init__(self, url: str, status: int, headers: Mapping[str, str]) -> None:
        self.status_code, self.headers = status, headers
        super().__init__(f"{without_path(url)} answered {status}")


async def post(webhook: WebhookSettings, id: str, body: bytes, at: datetime, *, resolve: Resolve | None = None) -> None:
    """Send it; raises `AddressRefused`, `NotDelivered`, TimeoutError, or what the network said."""
    async with asyncio.timeout(WITHIN_S):
        target = await find_target(webhook.url, webhook.allow, resolve)
        headers = {
            "content-type": "application/json",
            "user-agent": "fairlane",
            "host": target.url.netloc.decode("ascii"),
            **signed_headers(webhook.secret, id, at, body),
        }
        status, answered = await _sent(target.url, target.addresses[:MOST_ADDRESSES], headers, body)
    if 300 <= status < 400:
        raise NonRetryable(f"{without_path(webhook.url)} answered {status}; redirects are not followed")
    if not 200 <= status < 300:
        raise NotDelivered(webhook.url, status, answered)


async def _sent(
    url: object, addresses: tuple[str, ...], headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str]]:
    import httpx

    assert isinstance(url, httpx.URL)
    # The environment names proxies, and a proxy resolves names by itself. Certificates are checked against the name all the same.
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=WITHIN_S) as client:
        for left, address in enumerate(addresses, 1 - len(addresses)):
            request = client.build_request(
                "POST",
                url.copy_with(host=address.partition("%")[0]),
                headers=headers,
                content=body,
                extensions={"sni_hostname": url.raw_host.decode("ascii")},
            )
            try:
                response = await client.send(request, stream=True)
            except httpx.ConnectError:
                if left == 0:
                    raise
                continue
            await response.aclose()
            after = response.headers.get("retry-after")
            return response.status_code, {} if after is None else {"retry-after": after}
    raise AssertionError("a target has at least one address")
