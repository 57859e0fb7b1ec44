"""The link to Fairlane's dashboard in Django's admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect

from fairlane.contrib.django.models import Dashboard
from fairlane.contrib.django.project import dashboard_url
from fairlane.contrib.django.users import roles_of


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):
    """One entry, which leads to the dashboard; shown to those who may see it."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(roles_of(request.user)) and dashboard_url() is not None

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseRedirect:
        return HttpResponseRedirect(dashboard_url())
