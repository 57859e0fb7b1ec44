"""`app.alerts`: list alerts and what else is wrong, and silence rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Unpack

from fairlane.client.admin.concerns import Concerns, read_concerns
from fairlane.client.context import require_all_tenants
from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import ActOptions, audited
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.alerts import require_silenceable
from fairlane.core.ops import Alerts, ReadAlerts, SilenceAlerts

LONGEST_SILENCE_S = 30 * 86_400.0


class AlertAdmin(Verbs):
    """Methods for alerts."""

    __slots__ = ()

    def _list(self) -> Steps[Alerts]:
        """The alerts of the last day, and the silences in force."""
        require_all_tenants("the alerts")
        return (yield from ask(ReadAlerts()))

    def _concerns(self) -> Steps[Concerns]:
        """What is wrong now, the most urgent first: since when, how much it concerns, and the command that helps.

        Alerts that fire, jobs that nobody runs, pauses and limits that hold jobs, dead letters, blocked workflows.
        """
        return (yield from read_concerns(self._runtime))

    def _silence(self, rule: str, span: float | timedelta, **about: Unpack[ActOptions]) -> Steps[Alerts]:
        """Send no messages about this rule's alerts for a while; a span of 0 ends a silence.

        An alert that still fires when the silence ends is sent then.
        """
        require_all_tenants("silencing an alert")
        for_s = seconds("span", span, at_most=LONGEST_SILENCE_S)
        if for_s > 0:
            require_silenceable(rule, self._runtime.settings.alerts.rules_in_force)
        return (yield from ask(SilenceAlerts(rule=rule, for_s=for_s, **audited(about))))

    list, alist = both(_list, Right.READ)
    concerns, aconcerns = both(_concerns, Right.READ)
    silence, asilence = both(_silence, Right.ACT)
