"""Alerts: what is wrong is noticed once, however many processes look, and people are told.

    store ──▶ Observer ──observations──▶ core.alerting.evaluate ──changes──▶ SaveAlerts ──those saved──▶ Teller ─┬─ log
                                                                                                               ├─ events
                                                                     Fairlane's own jobs: fairlane.email  ◀────┼─ mail
                                                                                          fairlane.webhook ◀────┴─ webhooks

Whoever takes the duty looks; whose changes are saved tells. A message that could not be sent is retried like any other job.
"""

from fairlane.alerts.duty import AlertDuty as AlertDuty
from fairlane.alerts.tasks import register_sinks as register_sinks
