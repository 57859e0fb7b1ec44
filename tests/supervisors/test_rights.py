"""What `worker_service_user` may do, and what nobody can make it or the contract's functions do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings, strategies as st
from psycopg import sql

from fairlane.cli.main import cli
from fairlane.client.settings.load import load
from fairlane.errors import StoreError
from fairlane.stores.postgres import PostgresStore
from fairlane.supervisors.contract import CONTRACT, RUNNER
from fairlane.supervisors.function_check import examine_functions
from tests.servers.postgres import PostgresServer
from tests.supervisors.conftest import Database, install
from tests.support.stores import Ground

GRANTED = {
    "queues.dequeue_next_available_task()",
    "queues.complete_task(bigint)",
    "queues.fail_task(bigint,text)",
    "queues.renew_task(bigint)",
    "internal.run_function(text,jsonb)",
}
"""The document's list, and renew_task (decision D14)."""

BUSINESS = """
create schema shop;
create table shop.ran (name text);
create function shop.granted(_payload jsonb) returns jsonb language plpgsql security definer set search_path = shop, pg_temp
as $$ begin insert into ran values ('granted'); return jsonb_build_object('status', 'succeeded', 'payload', _payload); end $$;
create function shop."Odd; name"(_payload jsonb) returns jsonb language plpgsql security definer set search_path = shop, pg_temp
as $$ begin insert into ran values ('odd'); return '{"status": "succeeded"}'; end $$;
create function shop.not_granted(_payload jsonb) returns jsonb language plpgsql security definer set search_path = shop, pg_temp
as $$ begin insert into ran values ('not_granted'); return '{}'; end $$;
create function shop.other_shape(_payload text) returns jsonb language plpgsql security definer set search_path = shop, pg_temp
as $$ begin insert into ran values ('other_shape'); return '{}'; end $$;
create function shop.no_answer(_payload jsonb) returns void language plpgsql security definer set search_path = shop, pg_temp
as $$ begin insert into ran values ('no_answer'); end $$;
revoke all on all functions in schema shop from public;
grant usage on schema shop to worker_service_user;
grant execute on all functions in schema shop to worker_service_user;
revoke all on function shop.not_granted from worker_service_user;
"""


@pytest.fixture
def shop(db: Database) -> Database:
    db.do(BUSINESS)
    return db


@pytest.fixture
def worker(db: Database) -> Iterator[psycopg.Connection[Any]]:
    with db.worker() as conn:
        yield conn


@pytest.mark.requirement("S9")
def test_the_worker_may_call_what_the_document_lists_and_reads_no_table(db: Database) -> None:
    callable_ = db.ask(
        "select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
        "where n.nspname in ('queues', 'internal', 'fairlane') and has_schema_privilege('worker_service_user', n.oid, 'usage') "
        "and has_function_privilege('worker_service_user', p.oid, 'execute')"
    )
    assert {name for (name,) in callable_} == GRANTED
    relations = db.ask(
        "select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname in ('queues', 'internal', 'fairlane') and c.relkind in ('r', 'v', 'S', 'm') "
        "and (has_schema_privilege('worker_service_user', n.oid, 'create') or case when c.relkind = 'S' "
        "then has_sequence_privilege('worker_service_user', c.oid, 'usage, select, update') else has_table_privilege("
        "'worker_service_user', c.oid, 'select, insert, update, delete, truncate, references, trigger') end)"
    )
    assert relations == []
    [role] = db.ask(
        "select rolsuper, rolcreaterole, rolcreatedb, rolcanlogin, rolbypassrls from pg_roles where rolname = 'worker_service_user'"
    )
    assert role == (False,) * 5


@pytest.mark.requirement("S9")
def test_the_worker_is_refused_every_table_and_every_other_function(
    db: Database, worker: psycopg.Connection[Any]
) -> None:
    relations = db.ask(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname in ('queues', 'internal', 'fairlane') and c.relkind in ('r', 'v')"
    )
    assert len(relations) > 30
    for place in relations:
        for statement in ("select * from {}", "delete from {}", "insert into {} default values"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(sql.SQL(statement).format(sql.Identifier(*place)))
    functions = db.ask(
        "select p.oid::regprocedure::text, array(select 'null::' || t::regtype from unnest(p.proargtypes) t) "
        "from pg_proc p where p.pronamespace::regnamespace::text in ('queues', 'internal', 'fairlane') and p.prorettype <> 'trigger'::regtype"
    )
    assert len(functions) > 100
    for name, arguments in functions:
        if name not in GRANTED:
            call = f"select {name.split('(')[0]}({', '.join(arguments)})"
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(call.encode())


@pytest.mark.requirement("S9")
def test_every_function_of_the_contract_is_pinned_and_closed_to_the_public(db: Database) -> None:
    found = db.ask(
        "select p.oid::regprocedure::text from pg_proc p where p.pronamespace::regnamespace::text in ('queues', 'internal') and ("
        "p.proacl is null or exists (select from aclexplode(p.proacl) where grantee = 0) "
        "or (p.prosecdef and not exists (select from unnest(p.proconfig) s where s like 'search_path=%, pg_temp')))"
    )
    assert found == []


@pytest.mark.requirement("S3")
def test_a_granted_function_runs_and_gets_the_whole_payload(shop: Database, worker: psycopg.Connection[Any]) -> None:
    found = worker.execute("""select internal.run_function('shop.granted', '{"a": [1, {"b": null}]}')""").fetchone()
    assert found == ({"status": "succeeded", "payload": {"a": [1, {"b": None}]}},)
    worker.execute("""select internal.run_function('shop."Odd; name"', '{}')""")
    assert shop.ask("select name from shop.ran order by 1") == [("granted",), ("odd",)]


HOSTILE = [
    "shop.not_granted",
    "shop.other_shape",
    "shop.no_answer",
    "granted",
    "postgres.shop.granted",
    "shop.granted(jsonb)",
    "shop.granted; drop table shop.ran",
    "shop.granted('{}'); drop table shop.ran; --",
    "shop.granted($1) from shop.ran; --",
    'shop."granted',
    "SHOP.GRANTED.x",
    "shop..granted",
    ".granted",
    "shop.",
    "",
    "pg_catalog.jsonb_strip_nulls",
    "pg_catalog.pg_read_file",
    "queues.enqueue",
    "internal.run_function",
    "pg_temp.granted",
    "evil.granted",
    "$$",
    "shop.$$granted$$",
    "shop.granted" + "x" * 64,
    '"shop.granted"',
    "shop.граnted",
    "'; select 1; --",
]


@pytest.mark.requirement("S3", "S9")
def test_no_other_name_runs_anything(shop: Database, worker: psycopg.Connection[Any]) -> None:
    let_it_create(shop)
    worker.execute("create schema evil")
    for place in ("evil", "pg_temp"):
        worker.execute(f"create function {place}.granted(jsonb) returns jsonb language sql as 'select $1'".encode())
    worker.execute("set search_path = evil, pg_temp, public")
    for name in (*HOSTILE, None):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="the worker may not run function"):
            worker.execute("select internal.run_function(%s, '{}')", (name,))
    assert shop.one("select count(*) from shop.ran") == 0


def let_it_create(db: Database) -> None:
    db.do(f"grant create on database {sql.Identifier(db.owner.info.dbname).as_string(None)} to worker_service_user")


@pytest.mark.requirement("S3")
def test_made_up_names_run_nothing(shop: Database, worker: psycopg.Connection[Any]) -> None:
    pieces = st.sampled_from(
        ["shop", "granted", "not_granted", ".", '"', "'", ";", "--", "$$", "(", ")", " ", "\n", "x" * 63, "é", "\\"]
    )

    @settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(pieces, max_size=8).map("".join))
    def run(name: str) -> None:
        before = shop.one("select count(*) from shop.ran")
        try:
            worker.execute("select internal.run_function(%s, '{}')", (name,))
        except psycopg.errors.InsufficientPrivilege:
            assert shop.one("select count(*) from shop.ran") == before
        else:
            assert name.replace('"', "").replace(" ", "").replace("\n", "") == "shop.granted"

    run()


@pytest.mark.requirement("S3")
@pytest.mark.parametrize("name", ["no_such", "not_granted", "closed.ours"])
def test_what_is_refused_comes_with_what_mends_it(shop: Database, worker: psycopg.Connection[Any], name: str) -> None:
    shop.do("create schema closed")
    shop.do(CREATE.format(name="closed.ours", options="security definer"))
    shop.do("grant execute on function closed.ours to worker_service_user")
    name = name if "." in name else f"shop.{name}"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="the worker may not run function") as refused:
        worker.execute("select internal.run_function(%s, '{}')", (name,))
    assert refused.value.diag.constraint_name == RUNNER
    remedy = refused.value.diag.message_hint
    assert remedy is not None
    if name == "shop.no_such":
        assert remedy == "Create it, or cancel the task."
        return
    shop.do(remedy)
    worker.execute("select internal.run_function(%s, '{}')", (name,))


CREATE = """
create function {name}(_payload jsonb) returns jsonb language plpgsql {options}
as $$ begin return '{{"status": "succeeded"}}'; end $$;
"""
AS_WRITTEN = {
    "the document's words": ("security definer", ""),
    "and revoked": ("security definer", "revoke all on function {name} from public"),
    "the strictest path": ("security definer set search_path = ''", "revoke all on function {name} from public"),
    "a path of schemas": ("security definer set search_path = team, queues", ""),
    "our own path": ("security definer set search_path = team, pg_temp", "revoke all on function {name} from public"),
    "without rights": ("", "revoke all on function {name} from public"),
}
"""Options of a function that is granted to the worker, and what else is done with it."""


@pytest.mark.requirement("S3", "S9")
def test_functions_run_as_the_document_writes_them_and_the_check_names_what_is_risky(
    db: Database, worker: psycopg.Connection[Any]
) -> None:
    db.do("create schema team; grant usage on schema team to worker_service_user")
    names = {words: f"team.f{n}" for n, words in enumerate(AS_WRITTEN)}
    for words, (options, more) in AS_WRITTEN.items():
        db.do(CREATE.format(name=names[words], options=options))
        db.do(f"grant execute on function {names[words]} to worker_service_user")
        db.do(more.format(name=names[words]))
    db.do("create function team.other(_id bigint) returns jsonb language sql as $$ select '{}'::jsonb $$")
    db.do("grant execute on function team.other to worker_service_user")

    def run_all() -> None:
        for name in names.values():
            assert worker.execute("select internal.run_function(%s, '{}')", (name,)).fetchone() == (
                {"status": "succeeded"},
            )

    def risks() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {words: set() for words in (*AS_WRITTEN, "other")}
        for finding in examine_functions(load({"url": db.dsn})):
            assert finding.state == "warning"
            name = finding.function.removesuffix("(jsonb)").removesuffix("(bigint)")
            words = next((words for words, its in names.items() if its == name), "other")
            found[words].add(finding.says.split(":")[0].split(",")[0])
            db.do(finding.remedy)
        return found

    run_all()
    assert risks() == {
        "the document's words": {"everybody may execute it", "it has no search_path of its own"},
        "and revoked": {"it has no search_path of its own"},
        "the strictest path": set(),
        "a path of schemas": {
            "everybody may execute it",
            "it looks for unqualified tables among temporary ones first",
        },
        "our own path": set(),
        "without rights": {"it is not security definer"},
        "other": {"it does not take one jsonb and return jsonb"},
    }
    left = {words: says for words, says in risks().items() if says}
    assert left == {"without rights": {"it has no search_path of its own"}}
    assert not any(risks().values()), "what the check prints mends what it finds"
    run_all()
    db.do("grant create on schema team to public")
    assert risks()["our own path"] == {"the worker may make objects in schema team"}
    assert not any(risks().values())


@pytest.mark.requirement("S3")
def test_a_function_without_a_path_of_its_own_has_that_of_who_calls_it(
    db: Database, worker: psycopg.Connection[Any]
) -> None:
    db.do("create schema team; create table team.ran (what text); grant usage on schema team to worker_service_user")
    db.do(
        "create function team.f(_payload jsonb) returns jsonb language plpgsql security definer as "
        "$$ begin insert into ran values ('f'); return _payload; end $$; "
        "grant execute on function team.f to worker_service_user"
    )
    worker.execute("set search_path = team")
    assert worker.execute("""select internal.run_function('team.f', '{"a": 1}')""").fetchone() == ({"a": 1},)
    assert worker.execute("select internal.run_function('team.f', null)").fetchone() == (None,)
    assert db.ask("select what from team.ran") == [("f",)]
    assert worker.execute("show search_path").fetchone() == ("team",)


@pytest.mark.requirement("S9")
def test_a_search_path_full_of_traps_leads_nobody_astray(shop: Database, worker: psycopg.Connection[Any]) -> None:
    let_it_create(shop)
    shop.do("select queues.enqueue('email', '{}')")
    worker.execute("create schema evil")
    worker.execute(
        "create table evil.caught (what text); create temp table job (seq bigint); create temp table ready (seq bigint)"
    )
    for name, arguments, answer in [
        ("parse_ident", "text, boolean default true", "text[]"),
        ("format", "text, text, text", "text"),
        ("quote_literal", "text", "text"),
        ("clock_timestamp", "", "timestamptz"),
        ("require_task", "bigint", "void"),
        ("gen_random_uuid", "", "uuid"),
    ]:
        for place in ("evil", "pg_temp"):
            worker.execute(
                f"create function {place}.{name}({arguments}) returns {answer} language plpgsql "
                "as $$ begin insert into evil.caught values (current_user); return null; end $$".replace(
                    "return null;", "" if answer == "void" else "return null;"
                ).encode()
            )
    worker.execute("set search_path = pg_temp, evil, pg_catalog")
    worker.execute("select internal.run_function('shop.granted', '{}')")
    [(task,)] = worker.execute("select task_id from queues.dequeue_next_available_task()").fetchall()
    worker.execute("select queues.fail_task(%s, 'x')", (task,))
    worker.execute("select queues.complete_task(%s)", (task,))
    assert worker.execute("select count(*) from evil.caught").fetchone() == (0,)
    assert shop.one("select count(*) from queues.task_completed") == 1


class Company:
    """A database whose owner is no superuser, with an application and a worker that log in as themselves."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.dsn = server, server.new_database("company")
        self.name = self.dsn.rpartition("/")[2]
        self.owner, self.app, self.worker = (f"{self.name}_{part}" for part in ("master", "web", "channels"))
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for role in (self.owner, self.app, self.worker):
                conn.execute(f"create role {role} login".encode())
            conn.execute(f"alter role {self.owner} createrole".encode())
            conn.execute(f"alter database {self.name} owner to {self.owner}".encode())
            conn.execute(f"grant worker_service_user to {self.worker}".encode())

    def store(self) -> PostgresStore:
        return PostgresStore(self.server.dsn(self.name, self.owner))

    def ask(self, who: str, query: str) -> list[Any]:
        with psycopg.connect(self.server.dsn(self.name, who)) as conn:
            return conn.execute(query.encode()).fetchall()


@pytest.fixture
def company(ground: Ground, template: str) -> Company:
    return Company(ground.server)


@pytest.mark.requirement("S9", "I10")
@pytest.mark.parametrize("first", ["contract", "contract before task_outcome", "isolation", "no isolation"])
def test_the_contract_works_on_separated_roles_whichever_came_first(company: Company, first: str) -> None:
    store = company.store()
    store.migrator().up()
    if first == "isolation":
        store.isolator(CONTRACT).apply(company.name)
    store.migrator(CONTRACT).up()
    if first == "contract before task_outcome":
        with psycopg.connect(company.dsn) as conn:
            conn.execute("drop function queues.task_outcome")
    if first.startswith("contract"):
        store.isolator(CONTRACT).apply(company.name)
    with psycopg.connect(company.server.dsn(company.name, company.owner)) as conn:
        if first == "no isolation":
            conn.execute(f"grant usage on schema queues to {company.app}".encode())
            conn.execute(f"grant execute on function queues.enqueue to {company.app}".encode())
        else:
            conn.execute(f"grant {company.name}_enqueue to {company.app}".encode())
        conn.execute("update queues.schema_version set checksum = 'changed'")  # or there is nothing to do
    store.migrator(CONTRACT).up()
    store.close()
    company.ask(company.app, "select queues.enqueue('email', '{}')")
    [(task,)] = company.ask(company.worker, "select task_id from queues.dequeue_next_available_task()")
    company.ask(company.worker, f"select queues.renew_task({task})")
    company.ask(company.worker, f"select queues.fail_task({task}, 'no route')")
    assert company.ask(company.app, f"select queues.task_outcome({task})") == [(None,)]
    company.ask(company.worker, f"select queues.complete_task({task})")
    assert company.ask(company.app, f"select queues.task_outcome({task})") == [("completed",)]
    assert company.ask("postgres", "select count(*) from queues.task_completed") == [(1,)]
    for who in (company.app, company.worker):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            company.ask(who, "select * from queues.error")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        company.ask(company.worker, "select queues.enqueue('email', '{}')")


def test_a_schema_queues_of_somebody_else_is_left_alone(ground: Ground, template: str) -> None:
    dsn = ground.server.new_database("theirs")
    with psycopg.connect(dsn) as conn:
        conn.execute("create schema queues; create table queues.task (task_id bigint primary key)")
    with pytest.raises(StoreError, match="holds tables or functions that are not Fairlane's"):
        install(dsn)
    with psycopg.connect(dsn) as conn:
        assert conn.execute(
            "select count(*) from pg_class where relnamespace = 'queues'::regnamespace and relkind = 'r'"
        ).fetchone() == (1,)


def test_the_contract_stays_on_the_schema_it_was_installed_for(db: Database) -> None:
    other = PostgresStore(db.dsn, schema="other")
    other.migrator().up()
    db.do("update queues.schema_version set checksum = 'changed'")  # or there is nothing to do
    with pytest.raises(StoreError, match="work on another schema"):
        other.migrator(CONTRACT).up()
    other.close()
    db.do("select queues.enqueue('email', '{}')")
    assert db.one("select count(*) from fairlane.job") == 1


def test_no_function_of_the_public_schema_runs_as_the_one_who_looks(db: Database) -> None:
    """`public` is open to all in databases from before PostgreSQL 15; a function that fits better than the server's goes first."""
    db.do(BETTER_FITS)
    try:
        for command in ("supervisors check", "supervisors list", "doctor", "migrate status", "migrate up"):
            answer = CliRunner().invoke(cli, [*command.split(), "--url", db.dsn])
            assert answer.exit_code == 0, answer.output
        assert db.one("select is_called from public.ran") is False
    finally:
        db.do("drop schema public cascade; create schema public")


BETTER_FITS = """
create sequence public.ran;
create function public.note() returns text language sql as $$ select nextval('public.ran')::text $$;
create function public.format(text, text) returns text language sql as $$ select public.note() $$;
create function public.format(text, name) returns text language sql as $$ select public.note() $$;
create function public.join_text(text, name) returns text language sql as $$ select public.note() $$;
create operator public.|| (leftarg = text, rightarg = name, function = public.join_text);
create function public.has_schema_privilege(text, regnamespace, text) returns boolean language sql
as $$ select public.note() is null $$;
"""


HOSTILE_NAMES = (
    "x.y\n\\! touch owned\n",
    "x.y\r\\! touch owned",
    "x.y\u2028; drop table job; --",
    "\n; drop table job;",
)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_what_a_task_names_is_no_line_of_what_is_printed_to_be_run(db: Database, name: str) -> None:
    """`fairlane supervisors check | psql`: whoever may enqueue would run statements as the operator, and commands."""
    db.do("select queues.enqueue('db_function', jsonb_build_object('db_function', %s::text))", name)
    for command in (["supervisors", "check"], ["doctor"]):
        answer = CliRunner().invoke(cli, [*command, "--url", db.dsn])
        assert answer.exit_code == 1
        assert "x.y" in answer.stdout or "drop table" in answer.stdout
        for line in answer.stdout.splitlines():
            assert line.startswith(("--", "fail ", "warn ", "note ", "ok ", "STATE ")), line


@pytest.mark.parametrize("part", ["attempt", "attempt_succeeded", "attempt_failed", "stopped", "restarted"])
def test_counting_processes_runs_no_function_of_who_made_their_tables(db: Database, part: str) -> None:
    """A superuser counts what is in everybody's schemas: a view there would run its maker's functions as the superuser."""
    db.do("create role mallory; create schema trap authorization mallory; set session authorization mallory")
    try:
        db.do(TRAP + f"drop table trap.foo_{part}; create view trap.foo_{part} as select trap.grab() as foo_attempt_id, "
              "1::bigint as foo_task_id, now() as created_at, 'x' as error_message, 0::bigint as restarts")  # fmt: skip
        db.do("reset session authorization")
        assert CliRunner().invoke(cli, ["supervisors", "list", "--url", db.dsn]).exit_code == 0
        assert db.ask("select ran_as from trap.grabbed") == []
    finally:
        db.do("reset session authorization; drop owned by mallory cascade; drop role mallory")


TRAP = """
create table trap.grabbed (ran_as text);
create function trap.grab() returns bigint language plpgsql as $$
begin insert into trap.grabbed values (current_user); return 1; end $$;
create table trap.foo_task (foo_task_id bigint);
create table trap.foo_attempt (foo_attempt_id bigint, foo_task_id bigint);
create table trap.foo_attempt_succeeded (foo_attempt_id bigint);
create table trap.foo_attempt_failed (created_at timestamptz, error_message text);
create table trap.foo_stopped (foo_task_id bigint, created_at timestamptz, restarts bigint);
create table trap.foo_restarted (foo_task_id bigint);
insert into trap.foo_task values (1);
insert into trap.foo_attempt values (1, 1);
insert into trap.foo_attempt_succeeded values (1);
insert into trap.foo_attempt_failed values (now(), 'x');
insert into trap.foo_stopped values (1, now(), 0);
"""
