"""Alerts: evaluates the rules in one worker at a time, and sends each change to people once.

    store ──▶ Observer ──observations──▶ evaluate ──changes──▶ SaveAlerts ──saved ones──▶ AlertSinks ─┬─ log
                                                                                                    ├─ events
                                            Fairlane's own jobs: fairlane.email, fairlane.webhook ◀──┴─ mail, webhooks

The worker that takes the duty observes; the one whose changes are saved sends them. A message that could not be sent
is retried like any job.
"""

from fairlane.alerts.duty import AlertDuty as AlertDuty, StoreOutage as StoreOutage
from fairlane.alerts.sinks import register_sinks as register_sinks
