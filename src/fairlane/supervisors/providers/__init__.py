"""Providers of the channels: e-mail by SMTP, SMS by an HTTP gateway, files by signed DELETE requests.

Each is an object with `async def deliver(self, payload)`. A failure that another try cannot mend is a `NonRetryable`,
which spares the breaker: a refused recipient says nothing about the server.
"""

from fairlane.supervisors.providers.mail import SmtpMailer as SmtpMailer
from fairlane.supervisors.providers.sms import SmsGateway as SmsGateway
from fairlane.supervisors.providers.storage import (
    FileDeleter as FileDeleter,
    FilesService as FilesService,
    S3Signer as S3Signer,
)
