"""What has happened before an operator opens the runbook, section by section: a store, its jobs, and workers where they matter."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Any

from fairlane import Fairlane
from fairlane.core.ops import AddTenants
from fairlane.testing import run_due
from tests.acceptance import runbook_shop as shop
from tests.faults.eventually import eventually
from tests.servers.ports import free_port
from tests.support.commands import COMMANDS, can_be_forked

ROOT = Path(__file__).parents[2]
COMMAND_S = 60.0
SHELL = {"|", ">", ">>", "&", "&&", "||", ";", "2>&1"}

SCENES: dict[str, Callable[[Stage], None]] = {}


class Stage:
    """A directory with a store, the shop on it, and a shell in which the runbook's names stand for something."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.app = Fairlane(f"sqlite:///{directory}/jobs.db")
        self.app.runtime.tasks.update(
            {name: type(task)(task.definition, self.app.runtime.enqueuer) for name, task in shop.app.tasks.items()}
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "WORKER_"))}
        self.names = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(directory),
            "LOGNAME": "olga",
            "FAIRLANE_URL": f"sqlite:///{directory}/jobs.db",
            "FAIRLANE_APP": f"{shop.__name__}:app",
        }
        self._foreman: subprocess.Popen[bytes] | None = None

    def put(self, type: str, tenant: str, *, correlation_id: str | None = None, **payload: Any) -> Any:
        options = {} if correlation_id is None else {"correlation_id": correlation_id}
        return self.app.tasks[type].using(tenant=tenant, **options).enqueue(**payload)

    def die(self, how_many: int, tenant: str = "acme") -> list[int]:
        """Charges a bank that refuses them all."""
        shop.BANK_IS_AWAY.touch()
        for invoice in range(1, how_many + 1):
            self.put("billing.charge", tenant, invoice=invoice)
        run_due(self.app)
        shop.BANK_IS_AWAY.unlink()
        return sorted(int(letter.id) for letter in self.app.dead_letters.list(type="billing.charge").dead_letters)

    def fail(self) -> Any:
        """A job that waits for its second try."""
        job = self.put("crm.sync", "globex", account=1)
        run_due(self.app)
        return job

    def work(self, *flags: str) -> None:
        log, port = self.directory / "worker.log", free_port()
        with log.open("wb") as file:
            self._foreman = subprocess.Popen(
                [sys.executable, "-m", "fairlane", "worker", "-p", "1", "--probe-port", str(port), *flags],
                cwd=self.directory,
                env=self.names,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self.names |= {"FOREMAN": str(self._foreman.pid), "LOG": str(log), "PROBE_PORT": str(port)}
        self.eventually(lambda: "is ready" in log.read_text())

    def running(self) -> None:
        """A report that takes longer than anybody waits, known as $JOB."""
        job = self.put("reports.monthly", "acme", month="2030-01")
        self.eventually(lambda: job.status() == "processing")
        self.names["JOB"] = str(job.id)

    def broken(self) -> None:
        """The mail server is away, the breaker is open, and $JOB waits behind it."""
        shop.SMTP_IS_AWAY.touch()
        self.put("mail.send", "acme", user_id=1)
        self.eventually(lambda: [b for b in self.app.breakers.list() if b.state == "open"])
        self.names["JOB"] = str(self.put("mail.send", "acme", user_id=2).id)

    def eventually(self, look: Callable[[], Any]) -> None:
        try:
            eventually(look, within_s=60)
        except AssertionError as error:
            log = self.directory / "worker.log"
            raise AssertionError(f"{error}\n{log.read_text() if log.exists() else ''}") from None

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the page; a plain command of ours without a shell, which only takes time."""
        words = shlex.split(Template(command).safe_substitute(self.names))
        if words[0] == "fairlane" and not set(words) & SHELL and can_be_forked(words[1:], self.names):
            return COMMANDS.run(words[1:], cwd=self.directory, env=self.names, timeout=COMMAND_S)
        return subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.directory,
            env=self.names,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )

    def close(self) -> None:
        if self._foreman is not None and self._foreman.poll() is None:
            self._foreman.send_signal(signal.SIGKILL)  # its workers die with it
        if self._foreman is not None:
            self._foreman.wait()
        self.app.close()


def scene(title: str) -> Callable[[Callable[[Stage], None]], Callable[[Stage], None]]:
    def keep(build: Callable[[Stage], None]) -> Callable[[Stage], None]:
        SCENES[title] = build
        return build

    return keep


@scene("First look")
def everything_at_once(stage: Stage) -> None:
    stage.die(1)
    stage.work()
    stage.running()


@scene("Failed jobs")
def dead_letters(stage: Stage) -> None:
    letters = stage.die(4)
    stage.names |= {f"LETTER{n}": str(letter) for n, letter in enumerate(letters, 1)}
    stage.names |= {"LETTER": str(letters[0]), "JOB": str(stage.fail().id)}
    stage.names["FINGERPRINT"] = str(stage.app.dead_letters.list().dead_letters[0].fingerprint)
    stage.work()


@scene("A dependency is down")
def open_breaker(stage: Stage) -> None:
    stage.work()
    stage.broken()


@scene("Emergency stop")
@scene("Drain before maintenance")
@scene("A job is stuck")
def one_long_job(stage: Stage) -> None:
    stage.work()
    stage.running()


@scene("Many jobs fail")
def failures_of_three_kinds(stage: Stage) -> None:
    [letter] = stage.die(1)
    stage.fail()
    stage.work()
    stage.broken()
    stage.names["LETTER"] = str(letter)


@scene("A queue backs up")
def one_slot_for_many_jobs(stage: Stage) -> None:
    stage.work("-s", "1")
    stage.running()
    waiting = [stage.put("billing.charge", "acme", invoice=n) for n in range(20)]
    stage.names["JOB"] = str(waiting[-1].id)


@scene("A worker grows or crashes")
def worker_that_worked(stage: Stage) -> None:
    stage.work()
    done = stage.put("billing.charge", "acme", invoice=1)
    stage.eventually(lambda: done.status() == "completed")
    crashes = stage.put("images.resize", "acme", image=1)
    stage.eventually(lambda: crashes.status() == "dead")


@scene("A tenant floods")
def flood(stage: Stage) -> None:
    stage.put("crm.sync", "globex", account=1)
    waiting = [stage.put("billing.charge", "acme", invoice=n) for n in range(20)]
    stage.names["JOB"] = str(waiting[-1].id)
    stage.app.runtime.store.run(AddTenants())  # what a worker does by and by


@scene("Limits")
def two_reports(stage: Stage) -> None:
    stage.work("-s", "1")
    stage.running()
    stage.names["JOB"] = str(stage.put("reports.monthly", "globex", month="2030-02").id)


@scene("Follow one request")
def order_with_a_mail(stage: Stage) -> None:
    order = stage.put("orders.close", "acme", correlation_id="order-9", order=9)
    stage.put("orders.close", "acme", correlation_id="order-10", order=10)
    stage.work()
    stage.names["JOB"] = str(order.id)


@scene("The store is away")
def nobody_listens(stage: Stage) -> None:
    stage.names["FAIRLANE_URL"] = f"postgresql://fairlane@127.0.0.1:{free_port()}/fairlane"


@scene("Who may log in")
def leaked_token(stage: Stage) -> None:
    stage.shell("fairlane tokens create ops --role admin")
    stage.names["TOKEN"] = re.findall(r"[0-9a-f-]{36}", stage.shell("fairlane tokens list").stdout)[0]


@scene("Who did what")
def act_of_somebody(stage: Stage) -> None:
    [letter] = stage.die(1)
    stage.app.dead_letters.discard(letter, by="olga")
    stage.work()
