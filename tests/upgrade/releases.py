"""Older and newer releases beside today's: the code of the baseline commit, and releases that are made up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from fairlane.stores.migrations import Migration, Migrations
from fairlane.stores.postgres import roles, schema
from tests.upgrade.make_fixtures import HERE, export

BASELINE = (HERE / "baseline.txt").read_text().strip()
"""The commit whose code must run beside today's. It moves with each release (docs/operate/upgrade.md)."""


FUNCTIONS = "src/fairlane/stores/postgres/functions"


def before_last_change() -> str:
    """The commit whose functions are those before today's."""
    if _git("status", "--porcelain", "--", FUNCTIONS):
        return "HEAD"
    return _git("log", "-1", "--format=%H", "--", FUNCTIONS) + "~1"


def _git(*words: str) -> str:
    command = ["git", "-C", str(HERE.parent.parent), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Baseline:
    """The exported code of the baseline commit, or of another one."""

    def __init__(self, folder: Path, commit: str = BASELINE) -> None:
        self.source = folder / "src"
        export(commit, folder, "src")

    def run(self, code: str, *arguments: str) -> str:
        """Runs a snippet on that code; returns what it prints."""
        ran = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": str(self.source)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


class MadeUp:
    """A release behind today's, or before it: today's migrations and functions with others added, under another number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._migrations, self._functions = schema.CORE.migrations, schema.CORE.functions

    def become(self, release: int, functions: str = "", *steps: Migration, **replaced: str) -> None:
        """`replaced`: words of today's functions, and what stands in their place."""
        ours = (*self._migrations.expansions, *self._migrations.contractions)
        known = Migrations((*ours, *steps), release)
        text = self._functions
        for word, other in replaced.items():
            text = re.sub(rf"\b{word}\b", other, text)
        text = f"{text}\n{functions}"
        self._patch.setattr(schema.CORE, "release", release)
        self._patch.setattr(schema.CORE, "functions", text)
        self._patch.setattr(schema.CORE, "migrations", known)
        roles.callable_by.cache_clear()


def objects(dsn: str) -> dict[str, str]:
    """Everything in the schema by name, each as text; how functions are broken into lines does not count."""
    with psycopg.connect(dsn) as conn:
        return dict(conn.execute(_OBJECTS).fetchall())


_OBJECTS = r"""
select 'function ' || p.oid::regprocedure::text, regexp_replace(pg_get_functiondef(p.oid), '\s+', ' ', 'g')
from pg_proc p where p.pronamespace = 'fairlane'::regnamespace
union all
select format('%s %s', c.relkind, c.oid::regclass),
  string_agg(format('%s %s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull), ', ' order by a.attname)
  || coalesce(pg_get_viewdef(case c.relkind when 'v' then c.oid end), '')
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'fairlane'::regnamespace and c.relkind in ('r', 'v', 'c', 'i')
group by c.oid
"""
