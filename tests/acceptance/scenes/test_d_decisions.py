"""Decisions as an operator meets them: a backup that is restored under running workers, a read-only hour, and the look of 3 a.m."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fairlane import Fairlane, NonRetryable
from fairlane.testing import run_due
from tests.acceptance.scenes.served import Served
from tests.servers.postgres import PostgresServer
from tests.worker.foreman.crew import Crew

SHOP = """
import asyncio
import os
from pathlib import Path
from fairlane import Fairlane

app = Fairlane(os.environ["YARD_URL"])

@app.task(name="shop.charge", timeout=120)
async def charge(customer: str) -> str:
    with open("charged", "a") as ran:
        ran.write(customer + "\\n")
    while customer == "ann" and not Path("open").exists():
        await asyncio.sleep(0.02)
    return customer
"""


def crew_of(server: PostgresServer, folder: Path) -> Crew:
    (folder / "shop.py").write_text(SHOP)
    with Fairlane(server.create_database("shop")) as app:
        migrator = app.runtime.store.migrator()
        assert migrator is not None
        migrator.up()
    crew = Crew(server.dsn("shop"), folder)
    crew.app.task(name="shop.charge")(lambda customer: None)
    return crew


def charged(folder: Path) -> list[str]:
    file = folder / "charged"
    return file.read_text().split() if file.exists() else []


@pytest.mark.requirement("D25", "Q17")
def test_a_job_that_a_restored_backup_does_not_know_ends_no_other_one(tmp_path: Path) -> None:
    """The number of the lost job is given again, to a job of the same worker, queue and task."""
    with PostgresServer() as server, closing(crew_of(server, tmp_path)) as crew:
        foreman = crew.start("-p", "1", "-s", "4", app="shop:app", cwd=tmp_path)
        crew.eventually(lambda: "is ready" in foreman.log())
        server.stop()
        subprocess.run(["cp", "-a", server.data, tmp_path / "backup"], check=True)
        server.start()
        task = crew.app.tasks["shop.charge"]
        lost = crew.eventually(lambda: task.enqueue("ann"))
        crew.eventually(lambda: charged(tmp_path) == ["ann"], 40)
        number = lost.job().seq
        server.kill9()
        shutil.rmtree(server.data)
        subprocess.run(["mv", tmp_path / "backup", server.data], check=True)
        server.start()

        other = task.enqueue("bob")
        assert other.job().seq == number
        (tmp_path / "open").touch()  # the lost one ends now
        assert other.result(timeout=60) == "bob"
        assert charged(tmp_path) == ["ann", "bob"]
        assert crew.app.jobs.get(lost.id) is None
        assert foreman.stop() == 0


@pytest.mark.requirement("D26", "Q17")
def test_workers_and_web_processes_go_on_by_themselves_after_a_read_only_hour(tmp_path: Path) -> None:
    """What a managed failover does: sessions that begin meanwhile are read-only for as long as they live."""
    with PostgresServer() as server, closing(crew_of(server, tmp_path)) as crew:
        foreman = crew.start("-p", "1", "-s", "4", app="shop:app", cwd=tmp_path)
        task = crew.app.tasks["shop.charge"]
        assert task.enqueue("cy").result(timeout=60) == "cy"
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("alter system set default_transaction_read_only = on")
            admin.execute("select pg_reload_conf()")
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'shop' and pid <> pg_backend_pid()"
            )
            crew.eventually(lambda: "read-only: connect to the primary" in foreman.log())
            with pytest.raises(Exception, match="read-only"):
                task.enqueue("dan")
            workers = foreman.workers()
            admin.execute("set default_transaction_read_only = off")
            admin.execute("alter system reset default_transaction_read_only")
            admin.execute("select pg_reload_conf()")
        assert crew.eventually(lambda: task.enqueue("eve").result(timeout=60)) == "eve"
        assert foreman.workers() == workers, "no process was restarted"
        assert foreman.stop() == 0


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Fairlane]:
    """What the on-call engineer of the audit found: a paused queue, dead letters, a limit of none, a blocked workflow, no worker."""
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task(name="mail.send", queue="mail", max_attempts=1)
        def send(n: int) -> None:
            if n < 26:
                raise NonRetryable("no such mailbox")

        @app.task(name="order.pay", max_attempts=1)
        def pay() -> None:
            raise NonRetryable("card expired")

        @app.task(name="order.ship")
        def ship() -> None: ...

        app.chain(pay.bind(), ship.bind()).enqueue()
        for n in range(30):
            send.enqueue(n)
        run_due(app)
        app.queues.pause("mail", by="ada", notes="provider is down")
        app.limits.set(tenant="globex", running=0, by="ada")
        for n in range(40, 45):
            send.enqueue(n)
        ship.using(tenant="globex").enqueue()
        yield app


def typed(app: Fairlane, folder: Path, *words: str, exits: int = 0) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "fairlane", *words],
        cwd=folder,
        env={**os.environ, "FAIRLANE_URL": app.runtime.settings.url, "LOGNAME": "mira"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == exits, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.requirement("D27", "L13", "L15")
def test_doctor_why_and_previews_say_what_is_so_at_3_a_m(night: Fairlane, tmp_path: Path) -> None:
    checks = json.loads(typed(night, tmp_path, "doctor", "--json"))["checks"]
    wrong = {check["check"]: check for check in checks if check["state"] in ("fail", "warn", "note")}
    assert wrong["paused"]["says"].startswith('queue "mail" is paused by ada: provider is down; jobs that wait: 5')
    assert wrong["paused"]["remedy"] == "fairlane queues resume mail"
    assert wrong["dead letters"]["jobs"] == 27
    assert "no worker" in wrong
    assert any("globex" in check["says"] for check in wrong.values())
    assert any("workflow" in check["check"] for check in wrong.values())
    assert [check["state"] for check in checks].index("ok") == len(wrong), "what is wrong comes first"

    [node] = night.jobs.list(type="order.ship", tenant="system", status="pending").jobs
    said = typed(night, tmp_path, "jobs", "why", str(node.id))
    assert 'it waits for node "pay" of its workflow, which is dead' in said
    assert "fairlane dead-letters reprocess" in said
    assert "within seconds" not in said
    [limited] = night.jobs.list(type="order.ship", tenant="globex").jobs
    assert 'tenant "globex" has 0 of 0 running' in typed(night, tmp_path, "jobs", "why", str(limited.id))

    # 35 mails: 26 are dead, 4 completed, 5 wait.
    preview = json.loads(typed(night, tmp_path, "jobs", "cancel", "type:mail.send", "--dry-run", "--json"))
    assert (preview["matched"], preview["left"]) == (5, {"completed": 4, "dead": 26})
    with Served(night.runtime.settings.url, tmp_path) as served:
        token = served.type("fairlane tokens create mira --role operator")
        many = f"{served.address}/api/jobs/many/ -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json'"
        with pytest.raises(AssertionError, match="all"):
            served.type(f"""curl -X POST {many} -d '{{"act": "cancel", "where": {{}}, "dry_run": true}}'""")
        meant = served.type(f"""curl -X POST {many} -d '{{"act": "cancel", "all": true, "dry_run": true}}'""")
        assert json.loads(meant)["matched"] == 7, "what is unfinished, and not every job that ever was"
