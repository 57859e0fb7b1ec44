"""Settings of alerts: rules changed or added, and where alerts are sent.

[alerts.rules.queue_backlog]        a default rule, changed
threshold = 5000

[alerts.rules.mail_waits]           an added rule
watches = "oldest_pending_s"
only = "mail"
threshold = 120

[alerts.email]
host = "smtp.example.com"
sender = "fairlane@example.com"
to = ["oncall@example.com"]

[alerts.webhooks.pager]
url = "https://hooks.example.com/fairlane"
secret = "…"
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import replace

from fairlane.core.alerts import Rule, RuleChange, Severity, rules_in_force
from fairlane.core.names import check_rule_name
from fairlane.errors import InvalidOption
from fairlane.extras import require

Security = Literal["starttls", "tls", "none"]

HIDDEN = "***"
SHORTEST_SECRET = 16

_Text = Annotated[str, Meta(min_length=1, max_length=2_000)]
_Port = Annotated[int, Meta(ge=1, le=65_535)]


class EmailSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mail server and the recipients."""

    host: _Text
    sender: _Text
    to: Annotated[tuple[_Text, ...], Meta(min_length=1, max_length=50)]
    port: _Port = 587
    security: Security = "starttls"
    """How the connection is kept private; `none` is for a server on this machine."""
    username: _Text | None = None
    password: _Text | None = None
    severity: Severity = "warning"
    """The minimum severity to send."""

    def __post_init__(self) -> None:
        for address in (self.sender, *self.to):
            if "@" not in address or any(character.isspace() or ord(character) < 32 for character in address):
                raise InvalidOption("address of alerts.email", address, "an address such as oncall@example.com")
        if (self.username is None) != (self.password is None):
            raise InvalidOption("alerts.email", "username or password alone", "both, or neither")

    def redacted(self) -> EmailSettings:
        return replace(self, password=None if self.password is None else HIDDEN)

    def __repr__(self) -> str:
        return f"<EmailSettings {self.host}:{self.port} to {', '.join(self.to)}>"


class WebhookSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that is sent a signed request for every alert."""

    url: _Text
    secret: Annotated[str, Meta(min_length=SHORTEST_SECRET, max_length=1_000)]
    """The key that signs requests; the receiver knows it, too."""
    severity: Severity = "warning"
    allow: tuple[str, ...] = ()
    """Internal networks this webhook may reach, such as `10.1.2.0/24`; `http` is allowed within them."""

    def __post_init__(self) -> None:
        check_webhook_url(self.url)
        for network in self.allow:
            try:
                ip_network(network)
            except ValueError:
                raise InvalidOption("allow of a webhook", network, "a network, such as 10.1.2.0/24") from None

    def redacted(self) -> WebhookSettings:
        return replace(self, url=without_path(self.url), secret=HIDDEN * 6)

    def __repr__(self) -> str:
        return f"<WebhookSettings {without_path(self.url)}>"


class AlertSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True
    rules: Mapping[str, RuleChange] = {}
    email: EmailSettings | None = None
    webhooks: Mapping[str, WebhookSettings] = {}

    def __post_init__(self) -> None:
        rules_in_force(self.rules)
        for name in self.webhooks:
            check_rule_name(name)

    @property
    def rules_in_force(self) -> tuple[Rule, ...]:
        return rules_in_force(self.rules) if self.enabled else ()

    def require_extra(self) -> None:
        """Raise `MissingExtra` if mail or webhooks are configured but their package is missing.

        Called at the start of a process, not when an alert fires.
        """
        if self.email is not None:
            require("aiosmtplib", "alerts.email", "alerts")
        if self.webhooks:
            require("httpx", "alerts.webhooks", "alerts")

    def redacted(self) -> AlertSettings:
        """The same without passwords, secrets and the paths of webhooks, which often are secrets, too."""
        return replace(
            self,
            email=None if self.email is None else self.email.redacted(),
            webhooks={name: webhook.redacted() for name, webhook in self.webhooks.items()},
        )


def check_webhook_url(url: str) -> None:
    """Raise if the address is invalid. The network it leads to is checked when a message is sent."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, None
    if parts is None or not host or parts.scheme not in ("https", "http"):
        raise InvalidOption(
            "url of a webhook", without_path(url), "an address such as https://hooks.example.com/fairlane"
        )
    if "@" in parts.netloc:
        raise InvalidOption("url of a webhook", without_path(url), "an address without a user name or password in it")


def without_path(url: str) -> str:
    """Scheme and host, the only parts of an address that may be shown."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…" if parts.netloc else "…"
    except ValueError:
        return "…"
