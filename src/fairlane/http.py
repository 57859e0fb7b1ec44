"""Sends HTTP requests whose addresses are secrets: signed ones, and webhooks with a key in the path.

They go through httpx's transport. Its client writes every address into the log at INFO, and what watches clients
(Sentry's integration) records it. (tests/faults/test_canaries.py)
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fairlane.errors import NonRetryable
from fairlane.extras import needed_for

if TYPE_CHECKING:
    import httpx

_AGAIN = (408, 425, 429)
"""Refusals that another try may mend."""
_sending = ContextVar("fairlane_sending", default=False)


class _NotOurs(logging.Filter):
    """Drops what httpcore logs of our requests at DEBUG: the headers of an answer may repeat an address."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _sending.get()


_FILTER = _NotOurs()


def open_transport() -> httpx.AsyncHTTPTransport:
    """Connections without the proxies of the environment, which would resolve names themselves."""
    import httpx

    logging.getLogger("httpcore.http11").addFilter(_FILTER)
    return httpx.AsyncHTTPTransport(trust_env=False)


async def send(
    transport: httpx.AsyncHTTPTransport, method: str, url: httpx.URL | str, timeout_s: float, **content: Any
) -> httpx.Response:
    """The answer, its body not yet read. Redirects are not followed."""
    import httpx

    url = httpx.URL(url)
    headers = {"user-agent": "fairlane", "accept": "*/*"}
    if url.userinfo:
        headers |= basic_auth(url.username, url.password)
    headers |= content.pop("headers", {})
    extensions = {"timeout": httpx.Timeout(timeout_s).as_dict(), **content.pop("extensions", {})}
    request = httpx.Request(method, url, headers=headers, extensions=extensions, **content)
    token = _sending.set(True)
    try:
        return await transport.handle_async_request(request)
    finally:
        _sending.reset(token)


def basic_auth(username: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{username}:{password}'.encode()).decode()}"}


class HttpRequests:
    """Requests to one service, over connections that are kept between them, for each event loop its own."""

    def __init__(self, purpose: str, timeout_s: float) -> None:
        with needed_for(purpose, "alerts"):
            import httpx  # noqa: F401
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def send(
        self, method: str, url: str, *, also: tuple[int, ...] = (), what: str, **content: Any
    ) -> httpx.Response:
        """The answer to one request, if it is a success or one of `also`; `what` names the other side in errors.

        Errors never show the address: a signed one is a key.
        """
        import httpx

        try:
            response = await send(self._here(), method, url, self._timeout_s, **content)
            await response.aread()
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as error:
            raise NonRetryable(f"{what} has no usable address: {type(error).__name__}") from None
        except httpx.HTTPError as error:
            raise ConnectionError(f"{what} cannot be reached: {type(error).__name__}") from None
        if response.is_success or response.status_code in also:
            return response
        text = f"{what} answered {response.status_code}: {' '.join(response.text[:300].split())}".removesuffix(": ")
        if response.status_code < 500 and response.status_code not in _AGAIN:
            raise NonRetryable(text)
        raise ConnectionError(text)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    def _here(self) -> httpx.AsyncHTTPTransport:
        loop = asyncio.get_running_loop()
        if self._transport is None or self._loop is not loop:
            self._transport, self._loop = open_transport(), loop
        return self._transport
