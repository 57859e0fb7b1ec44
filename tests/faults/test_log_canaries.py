"""What processes print and log, everything at DEBUG, holds none of the secrets that they work with."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from fairlane import Fairlane
from fairlane.stores.postgres import PostgresStore
from fairlane.supervisors.contract import CONTRACT
from tests.faults.canaries import CONTROL, PLANTED, hits
from tests.faults.eventually import eventually
from tests.servers.ports import free_port
from tests.servers.valkey import ValkeyServer
from tests.supervisors.gateways import MailServer, WebServer
from tests.support.stores import Ground

ROOT = Path(__file__).parents[2]
APP = "tests.faults.chatty_shop:app"
WITHIN_S = 60.0
PASSWORD = PLANTED["password of a store"]
SUPERVISED = {
    "email": {"to_address": "ann@example.com", "subject": "Hello", "text": PLANTED["text of a mail"]},
    "file_delete": {"bucket": "invoices", "object_key": "7.pdf"},
    "file_drop": {"bucket": "invoices", "object_key": "8.pdf"},
    "file_lost": {"bucket": "invoices", "object_key": "9.pdf"},
}


SHOP = """
create schema shop;
create function shop.before(_payload jsonb) returns jsonb language sql security definer set search_path = shop, pg_temp
as $$ select jsonb_build_object('status', 'succeeded', 'payload', _payload->'to_deliver') $$;
revoke all on function shop.before from public;
grant usage on schema shop to worker_service_user;
grant execute on function shop.before to worker_service_user;
"""


class Town:
    """The servers around an application, and the processes that work for it."""

    def __init__(self, url: str, directory: Path, stack: ExitStack) -> None:
        self.url, self._directory, self._stack = url, directory, stack
        self.web, self.mail, self.private_mail = WebServer(), MailServer(), MailServer(private=True)
        for server in (self.web, self.mail, self.private_mail):
            stack.callback(server.close)
        self.web.signature = PLANTED["signature"]
        hook = f"/services/{PLANTED['path of a webhook']}?token={PLANTED['query of a webhook']}"
        self.web.status[hook] = 204
        self.private_mail.password = PLANTED["password of a mail server"].encode()
        places = (self.web.url, f"http://127.0.0.1:{free_port()}", str(self.mail.port), str(self.private_mail.port))
        self.sent = directory / "sentry"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "WORKER_"))}
        ours = {"PYTHONPATH": str(ROOT), "CHATTY_URL": url, "CHATTY_PLACES": " ".join(places)}
        self._environment = {**kept, **ours, "CHATTY_SENTRY": str(self.sent)}

    @contextmanager
    def started(self, *command: str) -> Iterator[Callable[[], str]]:
        """A process of ours, until the block ends; yields what it has printed so far."""
        log = self._directory / f"{command[0]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "fairlane", *command], cwd=self._directory, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip
        try:
            yield lambda: log.read_text("utf-8", "replace")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def ran(self, *command: str) -> str:
        """What a command prints."""
        ran = subprocess.run(
            [sys.executable, "-m", "fairlane", *command], check=False, cwd=self._directory, env=self._environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return ran.stdout + ran.stderr


@pytest.fixture(params=["postgres", "redis"])
def town(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Town]:
    with ExitStack() as stack:
        if request.param == "redis":
            server = stack.enter_context(ValkeyServer(requirepass=PASSWORD))
            url = server.url.replace("://", f"://:{PASSWORD}@")
        else:
            url = ground.address("postgres").replace("@", f":{PASSWORD}@")
            with closing(PostgresStore(url)) as store:
                store.migrator(CONTRACT).up()
            with psycopg.connect(url, autocommit=True) as conn:
                conn.execute(SHOP)
        yield Town(url, tmp_path, stack)


def use_api(address: str, app: Fairlane) -> tuple[list[int], list[str]]:
    """Requests with secrets in headers, bodies and queries; how they were answered, and the secrets made for them."""
    token = app.tokens.create("deploy", ["operator"], by="ada").secret
    link = app.tokens.create_link("grace", ["viewer"], by="ada").secret
    bearer, in_json = {"Authorization": f"Bearer {token}"}, {"Content-Type": "application/json"}
    new = {"type": "shop.pay", "payload": {"card": PLANTED["argument"]}}
    body = PLANTED["body of a request"]
    with httpx.Client(base_url=address, follow_redirects=False) as http:
        answers = [
            http.post("/api/jobs/", headers=bearer, json=new),
            http.post("/api/jobs/", headers=bearer, json={**new, "payload": body}),
            http.post("/api/jobs/", headers={**bearer, **in_json}, content=f'{{"a": "{body}"'),
            http.get("/api/jobs/", headers={"Authorization": f"Bearer fl_{PLANTED['guessed token']}"}),
            http.get("/api/jobs/", headers=bearer, params={"password": PLANTED["query of a request"]}),
            http.get("/login", params={"link": link}),
            http.post("/login", params={"link": link}),
            http.get("/"),
        ]
        [cookie] = http.cookies.jar
    assert cookie.value
    return [answer.status_code for answer in answers], [token, link, cookie.value]


@pytest.mark.requirement("W3", "S9")
def test_no_process_prints_or_logs_a_secret_it_works_with(town: Town) -> None:
    is_supervised = town.url.startswith("postgresql")
    with closing(Fairlane(town.url)) as app:
        options: dict[str, Any] = {"headers": {"authorization": PLANTED["header"]}}
        tasks = [app.task(name=f"shop.{name}", sensitive="allow")(lambda card: None) for name in ("pay", "decline")]
        paid, declined = (task.using(**options).enqueue(card=PLANTED["argument"]) for task in tasks)
        app.breakers.open("stripe", by="ada")  # An alert for both webhooks and the mail.
        if is_supervised:
            with psycopg.connect(town.url, autocommit=True) as conn:
                for kind, payload in SUPERVISED.items():
                    given = {"before_handler": "shop.before", "to_deliver": payload}
                    conn.execute("select queues.enqueue(%s, %s)", (kind, Jsonb(given)))
        with (
            town.started("worker", APP, "-p", "1") as worker,
            town.started("dashboard", APP, "--port", "0") as dashboard,
        ):
            commands = town.ran("doctor", "--app", APP, "--url", town.url.replace("@127.0.0.1", "@127.0.0.2"))
            printed = eventually(lambda: re.search(r": (http://\S+)/login\?link=(\S+)", dashboard()), WITHIN_S)
            statuses, made = use_api(printed[1], app)
            eventually(lambda: (paid.status(), declined.status()) == ("completed", "dead"), WITHIN_S)
            eventually(lambda: town.web.credentials, WITHIN_S)
            for failure in ("All connection attempts failed", "The SMTP AUTH extension is not supported"):
                eventually(lambda failure=failure: failure in worker(), WITHIN_S)  # type: ignore[misc]
            if is_supervised:
                eventually(lambda: town.private_mail.mails and len(town.web.queries) == 2, WITHIN_S)
                eventually(lambda: "the storage cannot be reached" in worker(), WITHIN_S)
    assert statuses == [201, 422, 400, 401, 422, 200, 303, 200]
    logs = {
        "worker": worker(),
        "dashboard": dashboard().replace(printed[2], ""),  # The link is printed for who has started it.
        "commands": commands,
        # Its own integration of web applications sends all queries.
        "Sentry": town.sent.read_text("utf-8").replace(PLANTED["query of a request"], ""),
    }
    seen = {name: hits(log.encode(), (*PLANTED.values(), *made)) for name, log in logs.items()}
    assert seen == {name: [] for name in logs}
    assert [name for name, log in logs.items() if CONTROL not in log] == ["Sentry"]
    assert "the bank declined" in logs["Sentry"]
