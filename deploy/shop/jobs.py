"""The shop's tasks. Where its jobs are kept is said outside, by FAIRLANE_URL."""

from __future__ import annotations

from fairlane import Fairlane

app = Fairlane()


@app.task(name="mail.send", queue="critical")
async def send_mail(user_id: int) -> str:
    return f"sent to user {user_id}"


@app.task(name="reports.monthly", queue="bulk")
def report(month: str) -> dict[str, str]:
    return {"month": month}
