"""An application that logs all there is to log, and sends what fails to Sentry; its secrets are those of `PLANTED`."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from fairlane import Fairlane, Retry, current_job
from fairlane.contrib.sentry import instrument
from fairlane.supervisors.channels import Channels
from fairlane.supervisors.providers import FileDeleter, FilesService, S3Signer, SmtpMailer
from tests.faults.canaries import CONTROL, PLANTED
from tests.supervisors.gateways import CERTIFICATE


class WholeRecords(logging.Formatter):
    """Each record as it is printed, and all that it carries beside an exception, which collectors get."""

    def format(self, record: logging.LogRecord) -> str:
        carried = {name: value for name, value in vars(record).items() if name != "exc_info"}
        return f"{super().format(record)} {carried!r}"


class Written(Transport):
    """Writes to a file what would go to Sentry."""

    def capture_envelope(self, envelope: Envelope) -> None:
        with Path(os.environ["CHATTY_SENTRY"]).open("ab") as file:
            file.write(envelope.serialize() + b"\n")


def _log_everything() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(WholeRecords())
    logging.basicConfig(level=logging.DEBUG, handlers=[handler])
    # Bodies of requests are the SDK's own to send: docs/guides/sentry.md.
    sentry_sdk.init(
        dsn="https://key@sentry.example.com/1", transport=Written, traces_sample_rate=1.0, max_request_body_size="never"
    )


def _webhook(url: str) -> dict[str, object]:
    address = f"{url}/services/{PLANTED['path of a webhook']}?token={PLANTED['query of a webhook']}"
    return {"url": address, "secret": PLANTED["key of a webhook"], "allow": ("127.0.0.0/8",)}


def _login() -> dict[str, str]:
    return {"username": PLANTED["user of a mail server"], "password": PLANTED["password of a mail server"]}


def _made() -> Fairlane:
    web, nobody, mail, private_mail = os.environ["CHATTY_PLACES"].split()
    app = Fairlane(
        os.environ["CHATTY_URL"],
        profile="development",
        sensitive="allow",
        alerts={
            "rules": {"breaker_open": {"for_s": 0}},
            "webhooks": {"pager": _webhook(web), "broken": _webhook(nobody)},
            # The server takes no log-in: what the mailer tries it with fails, and Sentry is told.
            "email": {"host": "127.0.0.1", "port": int(mail), "sender": "a@shop.example", "to": ("b@shop.example",),
                      "security": "none", **_login()},
        },
    )  # fmt: skip
    instrument(app, retries=True)
    if app.runtime.settings.url.startswith("postgresql"):
        channels = Channels(app)
        trusted = ssl.create_default_context(cafile=CERTIFICATE)
        mailer = SmtpMailer("localhost", int(private_mail), sender="a@shop.example", tls=trusted, **_login())
        channels.add("email", mailer)
        keys = {"access_key": PLANTED["access key"], "secret_key": PLANTED["secret key"]}
        channels.add("file_delete", FileDeleter(S3Signer(web, region="eu", **keys)))
        channels.add("file_drop", FileDeleter(FilesService(web, token=PLANTED["token of a service"])))
        channels.add("file_lost", FileDeleter(S3Signer(nobody, region="eu", **keys)))
    return app


_log_everything()
logging.getLogger("shop").debug(CONTROL)
app = _made()


@app.task(name="shop.pay")
def pay(card: str) -> dict[str, str]:
    current_job().log("paid")
    return {"receipt": PLANTED["result"], "card": card}


@app.task(name="shop.decline", retry=Retry(max_attempts=2, delays=(0.0,)))
def decline(card: str) -> None:
    raise ValueError("the bank declined")
