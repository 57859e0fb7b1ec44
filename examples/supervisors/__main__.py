"""Runs an example from kickoff to its end, on a PostgreSQL, a mail server and a web server of its own.

python -m examples.supervisors email | sms | files | accounts
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psycopg

from fairlane.stores.postgres import PostgresStore
from fairlane.supervisors.contract import CONTRACT
from tests.servers.postgres import PostgresServer
from tests.supervisors.gateways import MailServer, WebServer


class Example(NamedTuple):
    scripts: tuple[str, ...]
    start: str
    show: str


FILES = """
insert into accounts.account (email) values ('ann@example.com');
insert into files.file (account_id, bucket, object_key) values (1, 'photos', 'cat.jpg'), (1, 'photos', 'dog.jpg');
"""
EXAMPLES = {
    "email": Example(
        ("email",),
        """
        insert into comms.email_message (to_address, subject, body)
        values ('ann@example.com', 'Hi', 'Hello'), (null, 'Hi', '');
        select comms.kickoff_send_email(1);
        select comms.kickoff_send_email(2);
        """,
        """
        select m.*, s.created_at as succeeded_at, x.status as stopped
        from comms.send_email_task t join comms.email_message m using (email_message_id)
        left join comms.send_email_task_succeeded s using (send_email_task_id)
        left join comms.send_email_stopped x using (send_email_task_id)
        """,
    ),
    "sms": Example(
        ("sms",),
        "insert into comms.sms_message (to_number, body) values ('+491', 'Code 42'); select comms.kickoff_send_sms(1);",
        "select * from comms.send_sms_task join comms.send_sms_task_succeeded using (send_sms_task_id)",
    ),
    "files": Example(
        ("files",),
        FILES + "select files.kickoff_file_deletion(file_id) from files.file;",
        "select f.*, m.metadata from files.file f left join files.file_metadata m using (file_id)",
    ),
    "accounts": Example(
        ("files", "accounts"),
        FILES + "select api.request_account_deletion(1);",
        "select a.*, array_agg(f.flag order by f.created_at) as flags from accounts.account a "
        "join accounts.account_flag f using (account_id) group by 1",
    ),
}
OPEN = "select count(*) from (select task_id from queues.task except select task_id from queues.task_completed) t"


def main(name: str) -> None:
    example, mail, web = EXAMPLES[name], MailServer(), WebServer()
    web.objects |= {"/photos/cat.jpg", "/photos/dog.jpg"}
    with PostgresServer() as server:
        dsn = server.create_database("example")
        os.environ |= {"FAIRLANE_URL": dsn, "SMTP_PORT": str(mail.port), "GATEWAY_URL": web.url}
        store = PostgresStore(dsn)
        for migrator in (store.migrator(), store.migrator(CONTRACT)):
            migrator.up()
        store.close()
        with psycopg.connect(dsn, autocommit=True) as conn:
            for script in example.scripts:
                conn.execute(Path(__file__).with_name(f"{script}.sql").read_text().encode())
            conn.execute(example.start.encode())
            from examples.supervisors.channels import app

            with app, app.running():
                while conn.execute(OPEN.encode()).fetchone() != (0,):
                    time.sleep(0.1)
            shown = conn.execute(example.show.encode())
            print(*(column.name for column in shown.description or ()), sep=" | ")
            for row in shown.fetchall():
                print(*row, sep=" | ")
            for task in conn.execute("select task_id, task_type, payload from queues.task order by 1").fetchall():
                print("task", *task)
    mail.close()
    web.close()


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in EXAMPLES:
        sys.exit(f"usage: python -m examples.supervisors {' | '.join(EXAMPLES)}")
    main(sys.argv[1])
