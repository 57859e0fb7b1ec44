"""Secrets: 256 bits, shown once, kept as a hash."""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from hashlib import sha256

from fairlane.core.chance import Chance
from fairlane.core.ops import Credential

PREFIX_LENGTH = 11
"""Characters of a secret that are kept in the open, for people to tell tokens apart: 48 bits of 256."""

_SHAPE = re.compile(r"fl_[A-Za-z0-9_-]{43}", re.ASCII)


def new_secret(chance: Chance) -> str:
    return "fl_" + urlsafe_b64encode(chance.entropy(32)).rstrip(b"=").decode()


def has_the_shape(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def is_of(credential: Credential, secret: str) -> bool:
    """Whether a credential found by the hash of a secret bears its open part, compared in constant time."""
    return hmac.compare_digest(credential.prefix.encode(), secret[:PREFIX_LENGTH].encode())
