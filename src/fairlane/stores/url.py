"""Store addresses: which store one names, and how it may be shown."""

from __future__ import annotations

import re
from urllib.parse import unquote

from fairlane.errors import ConfigError, nearest

SCHEMES = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "redis": "redis",
    "rediss": "redis",
    "unix": "redis",
}
"""What stands before `://`, and the store it means."""

_CREDENTIALS = re.compile(r"^(?P<before>[a-z0-9+.-]+://[^:/?#]*?)(?::|%3a).*@", re.IGNORECASE | re.DOTALL)
_NO_PORT = re.compile(
    r"^(?P<before>[a-z0-9+.-]+://[^:@/?#\[]*):(?![0-9]{0,5}(?:[/?#,]|$)).*$", re.IGNORECASE | re.DOTALL
)
_OF_A_SLIP = re.compile(
    rf"^(?P<before>\W*(?:jdbc:)?(?:(?:{'|'.join(SCHEMES)})\b(?:\+\w+)?:?/{{0,3}})?).*@", re.IGNORECASE | re.DOTALL
)
"""What stands before the credentials in an address that is none, for example `postgres//user:password@host`."""
_WELL_FORMED = re.compile(rf"(?:{'|'.join(SCHEMES)})://", re.IGNORECASE)
_SECRET_PARAMETERS = re.compile(
    r"(?P<name>(?:^|[?&\s])(?:password|passwd|sslpassword|secret|token)\s*=\s*)[^&#\s]*", re.IGNORECASE
)


def redacted(url: str) -> str:
    """The address without its password, for messages and listings. Hides too much rather than too little."""
    if _CREDENTIALS.search(url):
        url = _CREDENTIALS.sub(r"\g<before>:***@", url)
    elif _NO_PORT.search(url):
        url = _NO_PORT.sub(r"\g<before>:***", url)
    elif not _WELL_FORMED.match(url):
        url = _OF_A_SLIP.sub(r"\g<before>***@", url)
    return _SECRET_PARAMETERS.sub(r"\g<name>***", url)


def store_named_by(url: str) -> str:
    """`memory`, `sqlite`, `postgresql` or `redis`."""
    scheme, found, _ = url.partition("://")
    if not found:
        raise ConfigError(
            f'url = "{redacted(url)}": expected an address such as sqlite:///fairlane.db, '
            "postgresql://user@host/database, redis://host:6379/0 or memory://"
        )
    try:
        return SCHEMES[scheme.lower()]
    except KeyError:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise ConfigError(
            f'url = "{redacted(url)}": no store is called "{scheme}"; '
            f"expected one of {known}.{nearest(scheme, SCHEMES)}"
        ) from None


def sqlite_path(url: str) -> str:
    """The file of `sqlite:///relative.db` or `sqlite:////absolute.db`."""
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    if host or not slash or not path:
        raise ConfigError(
            f'url = "{redacted(url)}": expected a file after three slashes, as in sqlite:///fairlane.db '
            "(four for an absolute path)"
        )
    if "?" in path:
        raise ConfigError(
            f'url = "{redacted(url)}": an address of a SQLite file has no parameters; in its name ? is written %3F'
        )
    return unquote(path)
