"""`fairlane doctor`: reports problems and their remedies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import FAILED, Printer, plural
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.cli.doctor.store import Finding


@click.command()
@at_store
@prints
def doctor(at: At, out: Printer) -> None:
    """Check settings, store and application, with remedies.

    Changes nothing. Exits with 1 if a check fails; warnings do not count as failures.
    """
    from fairlane.cli.doctor.checks import examine

    findings = list(examine(at))
    failed = sum(finding.state == "fail" for finding in findings)
    if out.as_json:
        out.data({"ok": not failed, "checks": [finding._asdict() for finding in findings]})
    else:
        out.table(("state", "check", "finding"), [(f.state, f.check, _with_remedy(f)) for f in findings])
        warned = sum(finding.state == "warn" for finding in findings)
        out.note(f"{plural(failed, 'failure')}, {plural(warned, 'warning')}")
    if failed:
        raise click.exceptions.Exit(FAILED)


def _with_remedy(finding: Finding) -> str:
    return f"{finding.says.rstrip('.')} → {finding.remedy}" if finding.remedy else finding.says
