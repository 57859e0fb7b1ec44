"""Makes the databases in fixtures/: jobs in every state, left behind by the code of the commit FROM.

python -m tests.upgrade.make_fixtures     exports that commit with its tests, and runs this file with its code

Everything from `make` on is written for the code of that commit, and does not follow later changes; but `job_facts` and
`other_facts` are also how tests look at the upgraded databases.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FROM = "9aff5d96ea146dcee5e553043ba5bccb89491b0d"
"""The last commit whose schema was not versioned apart from its functions."""
HERE = Path(__file__).resolve().parent
FIXTURES = HERE / "fixtures"


def export(commit: str, target: Path, *folders: str) -> None:
    """The files of a commit; fails where the repository's history is not there."""
    root = HERE.parent.parent
    packed = subprocess.run(["git", "-C", str(root), "archive", commit, *folders], capture_output=True, check=False)
    if packed.returncode:
        raise RuntimeError(
            f"the code of commit {commit} cannot be exported: {packed.stderr.decode().strip()}; "
            "upgrade tests need a clone with the whole history (git fetch --unshallow)"
        )
    subprocess.run(["tar", "-x", "-C", str(target)], input=packed.stdout, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        export(FROM, Path(folder), "src", "tests")
        path = os.pathsep.join([str(Path(folder) / "src"), folder])
        command = [sys.executable, str(Path(__file__).resolve()), "make"]
        subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True)


def make() -> None:
    from fairlane.stores.postgres import PostgresStore
    from fairlane.stores.sqlite import SqliteStore
    from tests.servers.account import server_account
    from tests.servers.postgres import PostgresServer

    file = Path("version_1.db")
    sqlite = SqliteStore(file)
    facts = {"sqlite": tell(sqlite)}
    sqlite.close()
    assert [path.name for path in Path.cwd().glob("version_1.db*")] == ["version_1.db"]
    FIXTURES.mkdir(exist_ok=True)
    (FIXTURES / "version_1.db.gz").write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    with PostgresServer() as server:
        dsn = server.create_database("fixture")
        store = PostgresStore(dsn)
        store.migrator().up()
        facts["postgres"] = tell(store)
        store.close()
        ran = server_account().run([str(server.programs / "pg_dump"), "--no-owner", dsn])
        assert ran.returncode == 0
    (FIXTURES / "version_1.sql.gz").write_bytes(gzip.compress(ran.stdout, mtime=0))
    (FIXTURES / "version_1.json").write_text(json.dumps(facts, indent=1) + "\n")


def tell(store: Any) -> dict[str, Any]:
    """Leaves jobs in every state, and everything else a store keeps; returns what must be found again."""
    from fairlane.core import ops
    from fairlane.core.limit import Limit
    from fairlane.testing.conformance.samples import completed, died, failure, retried
    from fairlane.testing.conformance.scene import Scene

    scene = Scene(store)
    jobs: dict[str, Any] = {}

    # Finished, retried and dead ones first: each claim takes what is ready in its own queue.
    worker, lease = scene.leased(queue="mail", tenant="acme", refs={"user": 7}, headers={"trace": "t-1"})
    scene.run(ops.Note(worker=worker, seq=lease.seq, attempt=1, progress=0.5, log=("half way",)))
    scene.settle(worker, completed(lease, '{"sent":true}'))
    jobs["completed"] = lease.id
    worker, lease = scene.leased(queue="mail", tenant="globex", idempotency_key="order-1", dedup_key="order")
    scene.settle(worker, retried(lease, delay_s=3600.0, because=failure("no route to host")))
    jobs["failed, waits for its retry"] = lease.id
    for story in ("dead", "dead and acknowledged", "dead and discarded", "dead and resolved", "dead and reprocessed"):
        worker, lease = scene.leased(queue=f"q-{story}", tenant="acme", payload=f'{{"story":"{story}"}}')
        scene.settle(worker, died(lease, failure(f"it is {story}", fingerprint=f"fp-{len(story)}")))
        jobs[story] = lease.id
    letters = {story: scene.see(job).seq for story, job in jobs.items()}
    scene.acknowledge(letters["dead and acknowledged"], notes="seen")
    scene.discard(letters["dead and discarded"])
    scene.resolve(letters["dead and resolved"])
    jobs["ready, reprocessed"] = scene.reprocess(letters["dead and reprocessed"]).new_job.id
    jobs["cancelled"] = scene.put(queue="mail").id
    scene.cancel(jobs["cancelled"], notes="not wanted")
    _, lease = scene.leased(queue="running")
    jobs["running, its worker is gone"] = lease.id
    _, lease = scene.leased(queue="running", start=False)
    jobs["prefetched, its worker is gone"] = lease.id
    worker, lease = scene.leased(queue="running")
    scene.cancel(lease.id)
    jobs["running, asked to stop"] = lease.id

    # What waits.
    jobs["ready"] = scene.put(priority=5, created_by="ada", category="letters").id
    jobs["ready, of a paused queue"] = scene.put(queue="paused").id
    jobs["scheduled"] = scene.put(delay_s=60.0, dedup_key="later").id
    jobs["scheduled for long"] = scene.put(run_at=scene.at(365 * 86400)).id
    full = Limit(kind="tenant", name="initech", queue="small", waiting=1, when_full="hold")
    scene.run(ops.SetLimit(limit=full, by="ada"))
    jobs["ready, at its tenant's limit"] = scene.put(queue="small", tenant="initech").id
    jobs["held"] = scene.put(queue="small", tenant="initech").id
    everything_else(scene)
    return {"jobs": {story: job_facts(scene, job) for story, job in jobs.items()}, **other_facts(scene)}


def everything_else(scene: Any) -> None:
    from datetime import timedelta
    from uuid import UUID

    from fairlane.core import ops
    from fairlane.core.breaker import BreakerPolicy
    from fairlane.core.limit import Limit, Rate
    from fairlane.core.ops import Alert, EventDraft, Planned, StatRow
    from fairlane.core.schedule import ScheduleSpec
    from fairlane.core.sealing import seal

    run = scene.run
    run(ops.SetLimit(limit=Limit(kind="queue", name="mail", running=5, rate=Rate(count=100, period_s=60.0)), by="ada"))
    run(ops.PauseClaims(kind="queue", name="paused", by="ada", notes="maintenance"))
    run(ops.SetTenant(name="acme", weight=3.0, tier="gold", by="ada"))
    run(ops.AddTenants(after="", limit=100))
    run(ops.Report(name="smtp", policy=BreakerPolicy(), failures=5))
    run(ops.Report(name="stripe", policy=BreakerPolicy(), failures=2))
    planned = [
        Planned(spec=ScheduleSpec(name=name, type="report.daily", cron="0 6 * * *"), next_at=scene.at(3600.0))
        for name in ("daily", "paused daily")
    ]
    run(ops.DeclareSchedules(schedules=tuple(planned), source="person", by="ada"))
    run(ops.PauseSchedule(name="paused daily", by="ada"))
    token = UUID("01890000-0000-7000-8000-000000000001")
    run(
        ops.IssueCredential(
            id=token, kind="token", name="ops", prefix="fl_abc", hash="h" * 64, roles=("viewer",), by="ada"
        )
    )
    revoked = UUID("01890000-0000-7000-8000-000000000002")
    run(
        ops.IssueCredential(
            id=revoked, kind="token", name="old", prefix="fl_old", hash="g" * 64, roles=("admin",), by="ada"
        )
    )
    run(ops.RevokeCredential(id=revoked, by="ada"))
    run(
        ops.AddEvents(
            events=(EventDraft(kind="job_completed", tenant="acme", data={"n": 1}), EventDraft(kind="dlq_alert"))
        )
    )
    alert = Alert(
        rule="dlq", about="", state="firing", since=scene.now, fired_at=scene.now, resolved_at=None, value=3.0,
        severity="critical", told_at=scene.now, version=1,
    )  # fmt: skip
    run(ops.SaveAlerts(alerts=(alert,)))
    run(ops.SilenceAlerts(rule="depth", for_s=86400.0 * 7, by="ada", notes="known"))
    minute = scene.now - timedelta(minutes=1)
    row = StatRow(
        minute=minute, type="mail.send", queue="mail", tenant="acme", completed=3, failed=1, wait_us=10, run_us=20
    )
    run(ops.AddStats(worker=scene.hire(), batch=1, rows=(row,)))
    unsealed = run(ops.ReadUnsealed())
    assert run(ops.SealAudit(links=seal(unsealed.last, unsealed.records))).sealed
    run(ops.SetTenant(name="globex", weight=2.0, by="ada"))  # one record behind the seals


def job_facts(scene: Any, job: Any) -> dict[str, Any]:
    found = scene.find(job)
    return {
        "id": str(job),
        "seq": found.job.seq,
        "status": found.job.status,
        "type": found.job.type,
        "tenant": found.job.tenant,
        "queue": found.job.queue,
        "priority": found.job.priority,
        "attempts": found.job.attempts,
        "payload": found.job.payload,
        "result": found.job.result,
        "last_error": found.job.last_error,
        "ended_attempts": [attempt.outcome for attempt in found.attempts],
    }


def other_facts(scene: Any) -> dict[str, Any]:
    from fairlane.core import ops

    chain = scene.run(ops.ReadAuditChain())
    return {
        "audit": len(scene.audit(limit=200)),
        "sealed": len(chain.sealed),
        "last_hash": chain.sealed[-1].link.hash,
        "unsealed": chain.unsealed,
        "schedules": sorted(schedule.spec.name for schedule in scene.run(ops.ListSchedules()).schedules),
        "limits": len(scene.run(ops.ListLimits()).limits),
        "pauses": [[pause.kind, pause.name] for pause in scene.run(ops.ListPauses()).pauses],
        "weights": scene.run(ops.ReadWeights()).weights,
        "breakers": {breaker.name: breaker.state for breaker in scene.run(ops.ListBreakers()).breakers},
        "credentials": sorted(
            credential.name for credential in scene.run(ops.ListCredentials(kind="token")).credentials
        ),
        "events": len(scene.run(ops.ReadEvents(scope=ops.ALL_TENANTS)).events),
        "alerts": len(scene.run(ops.ReadAlerts()).alerts),
        "workers": len(scene.run(ops.ListWorkers()).workers),
    }


if __name__ == "__main__":
    make() if sys.argv[1:] == ["make"] else main()
