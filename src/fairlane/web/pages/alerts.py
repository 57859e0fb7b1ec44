"""The page of alerts: what fires, what has just ended, and which rules are silenced."""

from __future__ import annotations

from fairlane.api.fields import Name
from fairlane.client.admin.alerts import AlertAdmin
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Pages, Values

pages = Pages("alerts", "/alerts", title="Alerts", key="a")

_ORDER = {"firing": 0, "pending": 1, "resolved": 2}


@pages.page("", AlertAdmin.alist, "alerts.html", all_tenants=True)
async def show_alerts(page: CurrentPage) -> Values:
    """Show the alerts of the last day, those that fire first, and the silences in force."""
    found = await page.app.alerts.alist()
    return {
        "alerts": sorted(found.alerts, key=lambda alert: (_ORDER[alert.state], alert.rule, alert.about)),
        "silences": found.silences,
        "silenced": {silence.rule for silence in found.silences},
    }


@pages.act("/{rule}/silence", AlertAdmin.asilence, done="The rule is silenced.", all_tenants=True)
async def silence_rule(page: CurrentPage, rule: Name, form: Form) -> str:
    minutes = form.number("minutes")
    await page.app.alerts.asilence(
        rule, 3600.0 if minutes is None else minutes * 60, by=page.by, notes=form.words("notes")
    )
    return page.url("show_alerts")


@pages.act("/{rule}/unsilence", AlertAdmin.asilence, done="The silence is over.", all_tenants=True)
async def end_silence(page: CurrentPage, rule: Name, form: Form) -> str:
    await page.app.alerts.asilence(rule, 0.0, by=page.by, notes=form.words("notes"))
    return page.url("show_alerts")
