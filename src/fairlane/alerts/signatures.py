"""Signed requests, as the Standard Webhooks convention has it: id, timestamp and body under one HMAC-SHA256.

webhook-id         the same for every try of one message: a receiver can tell what it has seen
webhook-timestamp  seconds since 1970 of this very try
webhook-signature  v1,<base64 of HMAC-SHA256(secret, "<id>.<timestamp>.<body>")>
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import datetime

TOLERANCE_S = 300.0
"""Older or newer requests are refused: what was overheard cannot be sent again later."""
_LONGEST_TIMESTAMP = 12
"""Digits; numbers of thousands raise errors instead of being old."""


def signed_headers(secret: str, id: str, at: datetime, body: bytes) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    return {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{_signature(secret, id, timestamp, body)}",
    }


def is_signed(secret: str, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Whether a received request was signed with this secret, lately. Header names in small letters."""
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
    """The bytes after `whsec_` are base64, by the convention; any other secret is taken as it is."""
    if secret.startswith("whsec_"):
        try:
            return b64decode(secret.removeprefix("whsec_"), validate=True)
        except NotBase64:
            return secret.encode()
    return secret.encode()
