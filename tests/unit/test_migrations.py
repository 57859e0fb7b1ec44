"""Which migrations are pending, which schemas code runs on, and the order of SQL files: values in, values out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from fairlane.errors import ConfigError, SchemaOutOfDate
from fairlane.stores.migrations import Migration, Migrations, Phase, SchemaState, require
from fairlane.stores.postgres.schema import CORE, in_order


def step(version: int, phase: Phase = "expand") -> Migration:
    return Migration(version, "colour", phase, "")


OURS = Migrations((step(2), step(1), step(2, "contract")), functions=4)


def test_migrations_are_read_from_their_file_names(tmp_path: Path) -> None:
    for name in ("0001_a.expand.sql", "0002_b_c.expand.sql", "0002_b_c.contract.sql"):
        (tmp_path / name).write_text(f"-- {name}")
    found = Migrations.in_folder(tmp_path)
    assert [(step.version, step.name) for step in found.expansions] == [(1, "a"), (2, "b_c")]
    assert found.contractions == (Migration(2, "b_c", "contract", "-- 0002_b_c.contract.sql"),)
    (tmp_path / "3_d.sql").write_text("")
    with pytest.raises(ValueError, match=r"3_d\.sql: expected a name such as"):
        Migrations.in_folder(tmp_path)


def test_a_purge_empties_every_table_of_postgresql() -> None:
    made = set(re.findall(r"^create table (\w+)", "\n".join(m.sql for m in CORE.migrations.expansions), re.MULTILINE))
    purge = CORE.functions.partition("function purge_v1")[2].partition("end\n$$;")[0]
    assert made - set(re.findall(r"\bdelete from (\w+);", purge)) == set(re.findall(r"\bupdate (\w+) set", purge))


@pytest.mark.parametrize("steps", [(step(2),), (step(1), step(1)), (step(1), step(2, "contract"))])
def test_gaps_twins_and_contractions_of_nothing_are_refused(steps: tuple[Migration, ...]) -> None:
    with pytest.raises(ValueError, match="migration"):
        Migrations(steps)


def test_what_is_pending_is_what_is_behind_as_far_as_asked() -> None:
    assert OURS.pending(SchemaState()) == (step(1), step(2))
    assert OURS.pending(SchemaState(), to=1) == (step(1),)
    assert OURS.pending(SchemaState(1)) == (step(2),)
    assert OURS.pending(SchemaState(7)) == ()
    for to in (0, 3):
        with pytest.raises(ConfigError, match="knows versions 1 to 2"):
            OURS.pending(SchemaState(), to)


def test_only_code_of_the_schemas_own_age_contracts_it() -> None:
    assert OURS.contracting(SchemaState(2, 0, 4)) == (step(2, "contract"),)
    assert OURS.contracting(SchemaState(2, 2, 4)) == ()
    for state, next_step in [
        (SchemaState(1, 0, 4), "migrate up"),
        (SchemaState(2, 0, 3), "migrate up"),
        (SchemaState(3, 0, 4), "upgrade the fairlane package"),
        (SchemaState(2, 0, 5), "upgrade the fairlane package"),
    ]:
        with pytest.raises(SchemaOutOfDate, match=next_step):
            OURS.contracting(state)


@given(st.builds(SchemaState, *[st.integers(0, 6)] * 3), st.integers(1, 6), st.integers(0, 6))
def test_code_runs_on_what_is_expanded_far_enough_and_not_contracted_too_far(
    state: SchemaState, version: int, functions: int
) -> None:
    runs = state.expanded >= version >= state.contracted and state.functions >= functions
    try:
        require(state, SchemaState(version, version, functions))
    except SchemaOutOfDate:
        assert not runs
    else:
        assert runs


@given(st.builds(SchemaState, *[st.integers(0, 9999)] * 3))
def test_a_state_is_read_back_from_its_description(state: SchemaState) -> None:
    assert SchemaState.described(f"Fairlane jobs: schema {state}") == state


def test_what_other_installations_say_of_themselves() -> None:
    assert SchemaState.described("Fairlane jobs, schema version 1") == SchemaState(1)
    assert SchemaState.described("jobs of the mail team") == SchemaState()


def test_files_come_behind_those_they_name_outside_of_late_bound_bodies() -> None:
    texts = {
        "a.sql": "create or replace function a() returns b_type language sql return c();",
        "b.sql": "create type b_type as (x integer);\n-- a is only named here",
        "c.sql": "create or replace function c() returns integer language plpgsql as $$ begin return a(); end $$;",
    }
    assert in_order(texts) == ("b.sql", "c.sql", "a.sql")
