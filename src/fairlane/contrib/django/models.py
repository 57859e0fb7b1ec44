"""The permissions of Fairlane's dashboard, for Django's users and groups; there is no table behind them."""

from __future__ import annotations

from django.db import models


class Dashboard(models.Model):
    """Carries the permissions, and the link in Django's admin."""

    class Meta:
        app_label = "fairlane"
        managed = False
        default_permissions = ()
        permissions = (
            ("operate_jobs", "Can see the contents of jobs and act on them"),
            ("manage_jobs", "Can act on jobs and on dead letters, as a manager"),
        )
        verbose_name = "dashboard"
        verbose_name_plural = "dashboard"
