"""What the catalog must say of an isolated store, whatever is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import psycopg
import pytest

from fairlane.core.ops import Check
from fairlane.stores.postgres.calls import function_of
from fairlane.stores.postgres.roles import Caller, Roles, callable_by
from tests.isolation.every_operation import EVERY
from tests.isolation.house import House

pytestmark = pytest.mark.requirement("I10")

ROLES = tuple(Roles.prefixed("fairlane"))
ENGINES_ALONE = {"credential", "knock"}
"""Tables with a tenant that no tenant reads."""

Ask = Callable[..., list[Any]]


@pytest.fixture
def ask(house: House) -> Ask:
    def ask(query: str, *params: object) -> list[Any]:
        with psycopg.connect(house.superuser) as conn:
            return conn.execute(query.encode(), params).fetchall()

    return ask


def names(rows: list[Any]) -> set[str]:
    return {row[0] for row in rows}


def test_every_table_forces_row_level_security(ask: Ask, house: House) -> None:
    forced = names(
        ask(
            "select relname from pg_class where relnamespace = 'fairlane'::regnamespace and relkind in ('r', 'p') "
            "and relrowsecurity and relforcerowsecurity"
        )
    )
    assert forced == set(house.tables()) - {"schema_version"}


def test_every_table_with_a_tenant_or_a_job_is_read_by_that_tenant_or_by_nobody(ask: Ask) -> None:
    has_tenant = names(
        ask(
            "select distinct c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid "
            "where c.relnamespace = 'fairlane'::regnamespace and c.relkind = 'r' and a.attname in ('tenant', 'seq') and not a.attisdropped"
        )
    ) - {"rolled_up"}
    told_apart = names(
        ask("select tablename from pg_policies where schemaname = 'fairlane' and policyname = 'fairlane_tenant'")
    )
    assert has_tenant - told_apart == ENGINES_ALONE
    granted = names(
        ask(
            "select distinct table_name::text from information_schema.role_table_grants g "
            "join pg_class c on c.relname = g.table_name and c.relkind = 'r' and c.relnamespace = 'fairlane'::regnamespace "
            "where table_schema = 'fairlane' and grantee not in ('fairlane_owner', 'fairlane_engine')"
        )
    )
    assert granted == told_apart


def test_policies_are_for_all_commands_with_a_check_and_only_the_engines_is_over_all_tenants(ask: Ask) -> None:
    found = ask(
        "select tablename, policyname, cmd, roles::text[], qual, with_check from pg_policies where schemaname = 'fairlane'"
    )
    for table, policy, command, roles, using, check in found:
        assert (command, using) == ("ALL", check), (table, policy)
        if policy == "fairlane_engine":
            assert (roles, using) == (["fairlane_engine"], "true"), table
        else:
            assert sorted(roles) == ["fairlane_api", "fairlane_read"], table
            assert "NULLIF(current_setting('fairlane.tenant'::text, true), ''::text)" in using, table
    assert len(found) > 40


def test_no_view_reads_with_its_owners_rights(ask: Ask) -> None:
    views = ask(
        "select relname, reloptions from pg_class where relnamespace = 'fairlane'::regnamespace and relkind in ('v', 'm')"
    )
    assert len(views) >= 9
    assert {name for name, options in views if "security_invoker=true" not in (options or [])} == set()


def test_none_of_our_roles_logs_in_is_superuser_or_bypasses_policies(ask: Ask) -> None:
    found = ask(
        "select rolname, rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication from pg_roles "
        "where rolname like 'fairlane\\_%%'"
    )
    assert {row[0]: any(row[1:]) for row in found} == dict.fromkeys(ROLES, False)
    members = ask(
        "select r.rolname, m.rolname from pg_auth_members a join pg_roles r on r.oid = a.roleid join pg_roles m on m.oid = a.member "
        "where r.rolname in ('fairlane_owner', 'fairlane_engine') and not m.rolsuper"
    )
    assert members == []


def test_functions_that_somebody_may_call_act_as_the_engine_with_a_pinned_path(ask: Ask) -> None:
    functions = ask(
        "select proname, pg_get_userbyid(proowner), prosecdef, coalesce(proconfig, '{}'), proacl is null or exists ("
        "  select from aclexplode(proacl) a where a.grantee = 0), "
        "  array(select grantee::regrole::text from aclexplode(proacl) where grantee not in (0, proowner) order by 1) "
        "from pg_proc where pronamespace = 'fairlane'::regnamespace"
    )
    assert {row[0] for row in functions if row[1] != "fairlane_engine"} == set()
    assert {row[0] for row in functions if row[4]} == set(), "executable by everybody"
    for name, _, is_definer, config, _, grantees in functions:
        expected = sorted(f"fairlane_{role}" for role in get_args(Caller) if name in callable_by(role))
        if name in ("flat", "as_jsonb", "not_made"):  # pure, and used by views and their triggers
            assert (is_definer, grantees) == (False, ["fairlane_api", "fairlane_read"])
            continue
        assert (is_definer, grantees) == (bool(expected), expected), name
        if is_definer:
            assert "search_path=fairlane, pg_temp" in config, name


def test_every_function_named_as_callable_is_there(ask: Ask) -> None:
    there = names(ask("select proname from pg_proc where pronamespace = 'fairlane'::regnamespace"))
    granted = {name for role in get_args(Caller) for name in callable_by(role)}
    assert granted - there == set()
    versioned = {name for name in there if name.endswith("_v1")}
    assert versioned - granted == {"purge_v1"}


def test_every_operation_has_a_function_of_its_name_and_every_function_an_operation(ask: Ask) -> None:
    there = names(ask("select proname from pg_proc where pronamespace = 'fairlane'::regnamespace"))
    versioned = {name for name in there if name.endswith("_v1")}
    by_hand = {f"{verb}_claim_v1" for verb in ("renew", "complete", "fail", "release")} | {"claim_v1"}
    assert versioned - by_hand - {"enqueue_one_v1", "enqueue_alike_v1"} == {
        function_of(kind) for kind in EVERY if kind is not Check
    }


def test_only_the_owner_makes_things_in_the_schema(ask: Ask) -> None:
    assert ask("select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'fairlane'") == [("fairlane_owner",)]
    rights = ask(
        "select coalesce(nullif(grantee, 0)::regrole::text, 'public'), privilege_type from pg_namespace, aclexplode(nspacl) "
        "where nspname = 'fairlane' and grantee <> nspowner order by 1"
    )
    assert rights == [(role, "USAGE") for role in sorted(ROLES) if role != "fairlane_owner"]


def test_nobody_but_the_owner_changes_or_removes_what_the_audit_says(ask: Ask) -> None:
    rights = ask(
        "select relname, grantee::regrole::text, privilege_type from pg_class, aclexplode(relacl) "
        "where relnamespace = 'fairlane'::regnamespace and relname in ('audit', 'audit_seal') and grantee <> relowner "
        "and privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')"
    )
    assert rights == []
    truncating = ask(
        "select relname from pg_class, aclexplode(relacl) where relnamespace = 'fairlane'::regnamespace "
        "and privilege_type = 'TRUNCATE' and grantee <> relowner"
    )
    assert truncating == []
