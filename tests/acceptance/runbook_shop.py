"""The application of the runbook's scenes, importable by workers of their own: `tests.acceptance.runbook_shop:app`.

What is away is a file of that name in the working directory.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fairlane import Breaker, Fairlane, NonRetryable, Retry

app = Fairlane(profile="development")

BANK_IS_AWAY, SMTP_IS_AWAY = Path("bank-is-away"), Path("smtp-is-away")
smtp = Breaker("smtp", threshold=1, cooldown=600)


@app.task(name="mail.send", queue="critical", breaker=smtp)
async def send_mail(user_id: int) -> None:
    if SMTP_IS_AWAY.exists():
        raise ConnectionError("the mail server did not answer")


@app.task(name="billing.charge")
async def charge(invoice: int) -> None:
    if BANK_IS_AWAY.exists():
        raise NonRetryable(f"invoice {invoice}: card expired")


@app.task(name="crm.sync", retry=Retry(max_attempts=3, delays=(3600.0,)))
async def sync(account: int) -> None:
    raise ConnectionError("the CRM did not answer")


@app.task(name="reports.monthly", queue="bulk", timeout=600)
async def report(month: str) -> None:
    """Takes longer than any test."""
    await asyncio.Event().wait()


@app.task(name="orders.close")
async def close_order(order: int) -> None:
    await send_mail.aenqueue(user_id=order)


@app.task(name="images.resize")
async def resize(image: int) -> None:
    """Takes its whole process with it, as a fault in a C library does."""
    os._exit(3)
