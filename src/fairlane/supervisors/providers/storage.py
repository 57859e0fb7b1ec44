"""Deletes files from object storage by signed DELETE requests.

Who signs is exchangeable: an HTTP files service that keeps the keys (`FilesService`), or this process with keys of its
own for S3-compatible storage (`S3Signer`, signature version 4). A file that is gone already is deleted.
"""

from __future__ import annotations

import hmac
import re
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from fairlane.core.clock import Clock, SystemClock
from fairlane.errors import InvalidOption, NonRetryable
from fairlane.http import HttpRequests

EXPIRES_S = 300


_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
"""A bucket becomes part of a host's name (`S3Signer(by_host=True)`): anything else could lead to another host."""


class StoredFile(Struct, frozen=True):
    """What a before handler prepares for a `file_delete` task."""

    bucket: str
    object_key: str

    def __post_init__(self) -> None:
        if not _BUCKET.fullmatch(self.bucket) or ".." in self.bucket:
            raise ValueError(f'bucket {self.bucket!r}: expected 3 to 63 of a-z, 0-9, ".", "_" and "-"')
        # Clients and proxies take such segments out of an address, and ask for another object or bucket.
        if not self.object_key or not {".", ".."}.isdisjoint(self.object_key.split("/")):
            raise ValueError(f'object_key {self.object_key!r}: expected a key without the segments "." and ".."')


class UrlSigner(Protocol):
    async def delete_url(self, file: StoredFile, /) -> str:
        """An address at which DELETE removes the file."""
        ...


class FileDeleter:
    """Delivers `file_delete` tasks."""

    def __init__(self, signer: UrlSigner, *, timeout_s: float = 30.0) -> None:
        self._signer = signer
        self._requests = HttpRequests("deleting files", timeout_s)

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        try:
            file = msgspec.convert(payload, StoredFile)
        except msgspec.ValidationError as error:
            raise NonRetryable(f"not a file: {error}") from error
        url = await self._signer.delete_url(file)
        response = await self._requests.send("DELETE", url, what="the storage", also=(404,))
        return {"bucket": file.bucket, "object_key": file.object_key, "was_missing": response.status_code == 404}

    async def close(self) -> None:
        await self._requests.close()
        if isinstance(self._signer, FilesService):
            await self._signer.close()


class FilesService:
    """Asks an HTTP service: POST {"method": "DELETE", "bucket": …, "object_key": …}, answered by {"url": …}."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 10.0) -> None:
        self._url = url
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._requests = HttpRequests("asking a files service", timeout_s)

    async def delete_url(self, file: StoredFile, /) -> str:
        asked = {"method": "DELETE", "bucket": file.bucket, "object_key": file.object_key}
        response = await self._requests.send(
            "POST", self._url, what="the files service", json=asked, headers=self._headers
        )
        try:
            url = response.json()["url"]
        except (ValueError, KeyError, TypeError):
            url = None
        if not isinstance(url, str):
            raise ConnectionError("the files service answered without a url")
        return url

    async def close(self) -> None:
        await self._requests.close()


class S3Signer:
    """Signs requests to S3-compatible storage. `endpoint` is the storage's address; the bucket becomes part of the
    path, or of the host with `by_host`."""

    def __init__(
        self,
        endpoint: str,
        *,
        region: str,
        access_key: str,
        secret_key: str,
        by_host: bool = False,
        clock: Clock | None = None,
    ) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise InvalidOption("endpoint", endpoint, "an address such as https://s3.eu-central-1.amazonaws.com")
        self._scheme, self._host, self._path = parts.scheme, parts.netloc, parts.path.rstrip("/")
        self._region, self._access_key, self._secret_key, self._by_host = region, access_key, secret_key, by_host
        self._clock = clock or SystemClock()

    async def delete_url(self, file: StoredFile, /) -> str:
        return self.presigned("DELETE", file, self._clock.now())

    def presigned(self, method: str, file: StoredFile, at: datetime, expires_s: int = EXPIRES_S) -> str:
        """An address that allows one kind of request until it expires."""
        host = f"{file.bucket}.{self._host}" if self._by_host else self._host
        place = "" if self._by_host else f"/{_encoded(file.bucket)}"
        path = f"{self._path}{place}/{_encoded(file.object_key, '/')}"
        scope = f"{at:%Y%m%d}/{self._region}/s3/aws4_request"
        query = "&".join(
            f"{name}={_encoded(value)}"
            for name, value in sorted(
                {
                    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
                    "X-Amz-Credential": f"{self._access_key}/{scope}",
                    "X-Amz-Date": f"{at:%Y%m%dT%H%M%SZ}",
                    "X-Amz-Expires": str(expires_s),
                    "X-Amz-SignedHeaders": "host",
                }.items()
            )
        )
        request = "\n".join((method, path, query, f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"))
        signed = "\n".join(("AWS4-HMAC-SHA256", f"{at:%Y%m%dT%H%M%SZ}", scope, sha256(request.encode()).hexdigest()))
        key = f"AWS4{self._secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, signed.encode(), "sha256").hexdigest()
        return f"{self._scheme}://{host}{path}?{query}&X-Amz-Signature={signature}"


def _encoded(text: str, safe: str = "") -> str:
    return quote(text, safe=f"{safe}-_.~")
