"""The channel worker of the examples, as an application would write it:

fairlane worker --app examples.supervisors.channels:app
"""

from __future__ import annotations

import os

from fairlane import Fairlane
from fairlane.supervisors.channels import Channels
from fairlane.supervisors.providers import FileDeleter, FilesService, SmsGateway, SmtpMailer

app = Fairlane()  # FAIRLANE_URL
channels = Channels(app)
channels.add(
    "email",
    SmtpMailer(
        os.environ.get("SMTP_HOST", "127.0.0.1"),
        int(os.environ.get("SMTP_PORT", "1025")),
        sender="shop@example.com",
        security="none",  # a server on this machine; leave it out for any other
    ),
)
web = os.environ.get("GATEWAY_URL", "http://127.0.0.1:8025")
channels.add("sms", SmsGateway(f"{web}/sms", username="shop", password="token", sender="+4930123"), rate="50/s")
channels.add("file_delete", FileDeleter(FilesService(f"{web}/sign")), running=10)
