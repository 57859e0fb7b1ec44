"""Settings of the project; the tests say by environment variables where the databases are."""

from __future__ import annotations

import os

import django
from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = "only for tests"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "tests.contrib.django_site.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tests.contrib.django_site",
    "fairlane.contrib.django",
    *([] if django.VERSION >= (6, 0) else ["django_tasks"]),
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
MIGRATION_MODULES = dict.fromkeys(("admin", "auth", "contenttypes", "sessions"))  # made at once: quicker in tests
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

_postgres = conninfo_to_dict(os.environ["SITE_POSTGRES"])
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SITE_SQLITE"]},
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _postgres["dbname"],
        "USER": _postgres.get("user", ""),
        "PASSWORD": _postgres.get("password", ""),
        "HOST": _postgres.get("host", ""),
        "PORT": _postgres.get("port", ""),
    },
}
_backend = "fairlane.contrib.django.FairlaneBackend"
_options = {"profile": "development"}
TASKS = {
    "default": {"BACKEND": _backend, "QUEUES": ["default", "mail"], "OPTIONS": _options},
    "postgres": {"BACKEND": _backend, "QUEUES": ["default", "mail"], "OPTIONS": {"database": "postgres", **_options}},
    "free": {"BACKEND": _backend, "QUEUES": [], "OPTIONS": _options},
    "elsewhere": {"BACKEND": _backend, "OPTIONS": {"url": "memory://", **_options}},
}
