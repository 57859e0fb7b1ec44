"""The project's own data."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=100)

    class Meta:
        app_label = "django_site"
