"""HTTP requests of the providers: within a time, without redirects or proxies of the environment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fairlane.errors import NonRetryable
from fairlane.extras import needed_for

if TYPE_CHECKING:
    import httpx

_AGAIN = (408, 425, 429)
"""Refusals that another try may mend."""


class HttpRequests:
    """A client that is kept between requests, one for each event loop."""

    def __init__(self, purpose: str, timeout_s: float) -> None:
        with needed_for(purpose, "alerts"):
            import httpx  # noqa: F401
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None

    async def send(
        self, method: str, url: str, *, also: tuple[int, ...] = (), what: str, **content: Any
    ) -> httpx.Response:
        """The answer to one request, if it is a success or one of `also`; `what` names the other side in errors.

        Errors never show the address: a signed one is a key.
        """
        import httpx

        try:
            response = await self._here().request(method, url, **content)
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
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _here(self) -> httpx.AsyncClient:
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client = httpx.AsyncClient(timeout=self._timeout_s, follow_redirects=False, trust_env=False)
            self._loop = loop
        return self._client
