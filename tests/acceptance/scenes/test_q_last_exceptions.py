"""Document Q, section 12: the exceptions of a worker, as a test and an operator read them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Fairlane, NonRetryable
from tests.faults.eventually import eventually

pytestmark = pytest.mark.requirement("Q7")


class ReportRejected(NonRetryable):
    pass


def test_the_id_the_error_and_the_class_of_each_exception(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task(name="reconcile")
        def reconcile(affiliate_report_id: int) -> None:
            raise ReportRejected(f"report {affiliate_report_id} has no post")

        report = reconcile.enqueue(7)
        with app.running():
            eventually(lambda: len(app.runtime.last_exceptions) == 1)
            one = app.runtime.last_exceptions[0]
            expected = {
                "id": str(report.id),
                "error": "report 7 has no post",
                "type": f"{__name__}.ReportRejected",
                "task": "reconcile",
            }
            assert {name: str(getattr(one, name)) for name in expected} == expected
            eventually(app.workers.exceptions)
            shown = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "fairlane",
                    "workers",
                    "exceptions",
                    "--json",
                    "--url",
                    app.runtime.settings.url,
                ],
                capture_output=True,
                check=True,
                cwd=tmp_path,
            )
        [found] = json.loads(shown.stdout)["exceptions"]
        assert {name: found["caught"][name] for name in expected} == expected
