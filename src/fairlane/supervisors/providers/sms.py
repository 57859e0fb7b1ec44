"""Delivers SMS through an HTTP gateway that takes a form, as Twilio's does."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from fairlane.errors import NonRetryable
from fairlane.http import HttpRequests, basic_auth


class SmsPayload(Struct, frozen=True):
    """What a before handler prepares for an `sms` task."""

    to_number: str
    body: str
    from_number: str | None = None
    """The gateway's sender by default."""


class FormFields(NamedTuple):
    """What the gateway calls the parts of a message, and the number it gives it."""

    to: str = "To"
    sender: str = "From"
    body: str = "Body"
    id: str = "sid"


TWILIO = FormFields()


class SmsGateway:
    """One gateway. With Twilio the `url` is `https://api.twilio.com/2010-04-01/Accounts/{account}/Messages.json`, the
    user name the account and the password its token."""

    def __init__(
        self,
        url: str,
        *,
        username: str,
        password: str,
        sender: str,
        fields: FormFields = TWILIO,
        timeout_s: float = 30.0,
    ) -> None:
        self._url, self._sender, self._fields = url, sender, fields
        self._headers = basic_auth(username, password)
        self._requests = HttpRequests("sending SMS", timeout_s)

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        try:
            given = msgspec.convert(payload, SmsPayload)
        except msgspec.ValidationError as error:
            raise NonRetryable(f"not an SMS: {error}") from error
        fields = self._fields
        form = {
            fields.to: given.to_number,
            fields.sender: given.from_number or self._sender,
            fields.body: given.body,
        }
        response = await self._requests.send(
            "POST", self._url, what="the SMS gateway", data=form, headers=self._headers
        )
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        return {"message_id": answer.get(fields.id), "response": answer}

    async def close(self) -> None:
        await self._requests.close()
