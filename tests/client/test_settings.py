"""Settings: where they come from, who wins, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fairlane import ConfigError, Fairlane, InvalidOption, QueuePolicy, StoreUnavailable
from fairlane.client.settings.load import load
from fairlane.client.settings.model import NAMES, SettingArguments, Settings
from fairlane.errors import NotAdmitted
from fairlane.stores.url import redacted

SECRET = "hunter2"


@pytest.mark.requirement("Q16")
def test_the_file_then_the_environment_then_arguments_win(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(
        'url = "sqlite:///file.db"\ncapacity = 1\nwarn_depth = 1\nschema = "jobs"\n'
    )
    environ = {"FAIRLANE_CAPACITY": "2", "FAIRLANE_WARN_DEPTH": "2"}
    settings = load({"warn_depth": 3}, environ=environ, directory=tmp_path)
    assert (settings.url, settings.schema, settings.capacity, settings.warn_depth) == (
        "sqlite:///file.db",
        "jobs",
        2,
        3,
    )
    assert {name: settings.source(name) for name in ("url", "capacity", "warn_depth", "notify")} == {
        "url": "fairlane.toml",
        "capacity": "environment FAIRLANE_CAPACITY",
        "warn_depth": "argument",
        "notify": "default",
    }
    assert {name: source for name, _, source in settings.shown()}["schema"] == "fairlane.toml"


@pytest.mark.requirement("Q16")
def test_pyproject_serves_where_there_is_no_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.fairlane]\ncapacity = 7\n[tool.other]\nx = 1\n")
    settings = load(environ={}, directory=tmp_path)
    assert (settings.capacity, settings.source("capacity")) == (7, "pyproject.toml [tool.fairlane]")
    (tmp_path / "fairlane.toml").write_text("warn_depth = 5\n")
    settings = load(environ={}, directory=tmp_path)
    assert (settings.capacity, settings.warn_depth) == (None, 5)


def test_a_named_file_is_read_instead(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text("capacity = 1\n")
    (tmp_path / "other.toml").write_text("capacity = 2\n")
    assert load(config=tmp_path / "other.toml", environ={}, directory=tmp_path).capacity == 2
    environ = {"FAIRLANE_CONFIG": str(tmp_path / "other.toml")}
    assert load(environ=environ, directory=tmp_path).capacity == 2
    with pytest.raises(ConfigError, match="is not a file"):
        load(config=tmp_path / "missing.toml", environ={})


def test_nothing_given_means_a_file_beside_the_program(tmp_path: Path) -> None:
    settings = load(environ={}, directory=tmp_path)
    assert (settings.url, settings.profile, settings.fallback) == ("sqlite:///fairlane.db", "production", "refuse")
    assert settings == Settings()


@pytest.mark.requirement("Q16")
def test_every_kind_of_value_can_come_from_the_environment(tmp_path: Path) -> None:
    environ = {
        "FAIRLANE_URL": "memory://",
        "FAIRLANE_STRICT_PAYLOAD": "yes",
        "FAIRLANE_STATEMENT_TIMEOUT_S": "2.5",
        "FAIRLANE_CATEGORIES": "mail, maintenance",
        "FAIRLANE_PRIORITIES": '{"urgent": 0, "later": 20}',
        "FAIRLANE_QUEUES": '{"mail": {"slots": 3, "retry": {"delays": [1, 2], "max_attempts": 3}}, "bulk": {"slots": 9}}',
        "FAIRLANE_ROUTES": '{"mail.*": "mail"}',
        "FAIRLANE_CAPACITY": "",
    }
    settings = load(environ=environ, directory=tmp_path)
    assert (settings.strict_payload, settings.statement_timeout_s, settings.capacity) == (True, 2.5, None)
    assert (settings.categories, settings.priorities) == (("mail", "maintenance"), {"urgent": 0, "later": 20})
    mail, bulk = settings.queues["mail"], settings.queues["bulk"]
    assert mail.retry is not None
    assert (mail.slots, mail.retry.delays, mail.retry.max_attempts) == (3, (1.0, 2.0), 3)
    assert (bulk.slots, bulk.timeout_s) == (9, None)
    assert "critical" in settings.queues


@pytest.mark.requirement("Q16", "Q4")
def test_the_documents_variables_choose_redis_with_memory_to_fall_back_on(tmp_path: Path) -> None:
    environ = {
        "USE_REDIS_QUEUE": "true",
        "REDIS_URL": "rediss://:pw@cache:6380/1",
        "REDIS_HEALTH_CHECK_TIMEOUT": "1.5",
    }
    settings = load(environ=environ, directory=tmp_path)
    assert (settings.url, settings.fallback, settings.spool) == ("rediss://:pw@cache:6380/1", "memory", "memory")
    assert settings.health_check_timeout_s == 1.5
    assert settings.run_spooled
    assert settings.source("url") == "environment REDIS_URL"
    assert load(environ={"USE_REDIS_QUEUE": "1"}, directory=tmp_path).url == "redis://localhost:6379/0"
    assert load(environ={"USE_REDIS_QUEUE": "false"}, directory=tmp_path).url == "memory://"
    assert load(environ={"REDIS_URL": "redis://cache"}, directory=tmp_path).url == "sqlite:///fairlane.db"
    environ["FAIRLANE_URL"] = "memory://"
    assert load(environ=environ, directory=tmp_path).url == "memory://"


WRONG: list[tuple[dict[str, str], str]] = [
    ({"FAIRLANE_URL": "mysql://host/db"}, r"environment FAIRLANE_URL: .*no store is called \"mysql\""),
    ({"FAIRLANE_URL": "postgresl://host/db"}, 'Nearest: "postgresql"'),
    ({"FAIRLANE_URL": "jobs.db"}, "expected an address such as"),
    ({"FAIRLANE_CAPACITY": "many"}, r"FAIRLANE_CAPACITY: capacity = 'many': Expected `int"),
    ({"FAIRLANE_CAPACITY": "0"}, "Expected `int` >= 1"),
    ({"FAIRLANE_CAPACITY": "1.5"}, "capacity"),
    ({"FAIRLANE_PROFILE": "staging"}, "expected one of development, production, isolation"),
    ({"FAIRLANE_STRICT_PAYLOAD": "maybe"}, "expected true or false"),
    ({"FAIRLANE_STATEMENT_TIMEOUT_S": "nan"}, "statement_timeout_s"),
    ({"FAIRLANE_STATEMENT_TIMEOUT_S": "-1"}, "statement_timeout_s"),
    ({"FAIRLANE_PRIORITIES": "{"}, "priorities"),
    ({"FAIRLANE_PRIORITIES": '{"high": -1}'}, "priorities"),
    ({"FAIRLANE_QUEUES": "[]"}, "a table of queues"),
    ({"FAIRLANE_QUEUES": '{"bulk": {"slot": 3}}'}, 'Nearest: "slots"'),
    ({"FAIRLANE_QUEUES": '{"bulk": {"slots": "x"}}'}, "queues"),
    ({"FAIRLANE_QUEUES": '{"a b": {}}'}, "queue"),
    ({"FAIRLANE_QUEUES": '{"bulk": {"retry": {"delays": [-1]}}}'}, "delays"),
    ({"FAIRLANE_ROUTES": '{"mail.*": "mial"}'}, "not among the queues"),
    ({"FAIRLANE_DEFAULT_CATEGORY": "misc"}, "not among the categories"),
    ({"FAIRLANE_DEFAULT_TENANT": "a\nb"}, "default_tenant"),
    ({"FAIRLANE_SCHEMA": "drop table; --"}, "schema"),
    ({"FAIRLANE_PAYLOAD_WARN_BYTES": "2000000"}, "above payload_max_bytes"),
    ({"FAIRLANE_CAPACTY": "5"}, 'FAIRLANE_CAPACTY: there is no such setting. Nearest: "capacity"'),
    ({"USE_REDIS_QUEUE": "perhaps"}, "USE_REDIS_QUEUE"),
    ({"REDIS_HEALTH_CHECK_TIMEOUT": "soon"}, "REDIS_HEALTH_CHECK_TIMEOUT"),
]


@pytest.mark.requirement("Q16")
@pytest.mark.parametrize(("environ", "problem"), WRONG, ids=[problem for _, problem in WRONG])
def test_a_wrong_setting_is_named_with_its_place_and_expectation(
    tmp_path: Path, environ: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(environ=environ, directory=tmp_path)


@pytest.mark.requirement("Q16")
def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(
        'capcity = 3\nprofile = "staging"\nstrict_payload = "yes"\ncapacity = true\n'
    )
    with pytest.raises(ConfigError) as raised:
        load({"notify": "loudly"}, environ={"FAIRLANE_URL": "ftp://x"}, directory=tmp_path)
    text = str(raised.value)
    assert all(
        part in text
        for part in ("capcity", 'Nearest: "capacity"', "staging", "strict_payload", "capacity = True", "loudly", "ftp")
    )


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text("url = \n")
    with pytest.raises(ConfigError, match=r"fairlane\.toml cannot be read"):
        load(environ={}, directory=tmp_path)


def test_other_tools_variables_are_left_alone(tmp_path: Path) -> None:
    assert load(environ={"FAIRLANE_LONG": "1", "FAIRLANE_X": "y", "PATH": "/bin"}, directory=tmp_path) == Settings()


ADDRESSES = [
    f"postgresql://user:{SECRET}@host/db",
    f"postgresql://user:p@{SECRET}/x:y@host/db",
    f"redis://:{SECRET}@host:6379/0",
    f"postgresql://host/db?user=u&password={SECRET}&sslmode=require",
]


@pytest.mark.requirement("Q16")
@pytest.mark.parametrize("url", ADDRESSES)
def test_a_password_is_never_shown(url: str, tmp_path: Path) -> None:
    settings = load({"url": url}, environ={}, directory=tmp_path)
    app = Fairlane(settings=settings)
    shown = [repr(settings), str(settings), repr(app), repr(list(settings.shown()))]
    for bad in (url.replace("://", "x://"), url.replace("://", ":/")):
        with pytest.raises(ConfigError) as raised:
            load({"url": bad}, environ={}, directory=tmp_path)
        shown.append(str(raised.value))
    assert SECRET not in "".join(shown)
    assert "***" in repr(settings)


SLIPS = [
    "postgres//app:{x}@db/shop",
    "postgresql:/app:{x}@db/shop",
    "postgresql:app:{x}@db/shop",
    "postgresql//{x}@db",
    "postgres@app:{x}@db/shop",
    "app:{x}@db:5432/shop",
    "  postgresql://app:{x}@db/shop",
    "'postgresql://app:{x}@db/shop'",
    "jdbc:postgresql://app:{x}@db/shop",
    "postgresql+psycopg://app:{x}@db/shop",
    "mysql://app:{x}@db/shop",
    "host=db password={x}",
    "postgresql://app:{x}",
    "postgresql://app:{x}@[::1/shop",
    "postgresql://app:{x}@db:notaport/shop",
    "postgresql://app:a%zz{x}@db/shop",
    "postgresql://app:a/{x}@db/shop",
    "postgresql://app:x@{x}@127.0.0.1:1/shop",
    "postgresql://app:{x}?@127.0.0.1:1/shop",
    "postgresql://app:{x}#@127.0.0.1:1/shop",
    "PostgreSQL://app:{x}@127.0.0.1:1/shop",
    "postgresql://app:{x}@127.0.0.1:1/shop?sslmode=nope",
    "postgresql://127.0.0.1:1/shop?user=app&password={x}&unknown=1",
    "postgresql://app:a?{x}=b@127.0.0.1:1/shop?unknown=1",
    "postgresql://app:a?b=1&{x}=c@127.0.0.1:1/shop?unknown=1",
    "sqlite://app:{x}@h/x",
    "sqlite:///jobs.db?password={x}",
    "redis://:{x}@cache",
    "rediss://bob@corp:{x}@h:x",
    "postgresql://u%3A{x}@h:x/db",
]


@pytest.mark.requirement("Q16")
@pytest.mark.parametrize("slip", SLIPS)
def test_a_malformed_address_never_shows_its_password(slip: str, tmp_path: Path) -> None:
    url = slip.format(x=SECRET)
    shown = [redacted(url)]

    def use() -> None:
        settings = load({"url": url}, environ={}, directory=tmp_path)
        shown.extend([repr(settings), repr(list(settings.shown()))])
        with Fairlane(settings=settings) as app:
            app.jobs.list()

    with pytest.raises((ConfigError, StoreUnavailable)) as raised:
        use()
    seen: BaseException | None = raised.value
    while seen is not None:
        shown.append(str(seen))
        seen = seen.__cause__
    assert [text for text in shown if SECRET in text] == []


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    for url in (
        "postgresql://user@host:5432/db?sslmode=require",
        "postgresql://host:5432,other:5433/db",
        "postgresql://[::1]:5432/db",
        "sqlite:////var/jobs.db",
        "sqlite:////var/a@b/jobs.db",
        "memory://",
        "redis://host/0",
    ):
        assert redacted(url) == url
    assert redacted("host=h user=u password=hunter2 dbname=d") == "host=h user=u password=*** dbname=d"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://me:{x}@127.0.0.1:1/app?sslmode=disable&poolsize=3", '"poolsize" is no parameter of libpq'),
        ("redis://me:{x}@127.0.0.1:1/0?poolsize=3", "behind the ?, got poolsize"),
        ("sqlite:///{{tmp}}/jobs.db?poolsize=3", "an address of a SQLite file has no parameters"),
    ],
)
def test_an_unknown_parameter_of_an_address_is_named(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)) as raised, Fairlane(url.format(x=SECRET)) as app:
        app.jobs.list()
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "parameter",
    ["sslmode=bogus", "connect_timeout=abc", "target_session_attrs=bogus", "keepalives=abc", "port=abc"],
)
def test_a_value_that_no_waiting_mends_is_told_apart_from_a_store_that_is_away(parameter: str) -> None:
    """A worker ends for it, instead of trying until the store answers."""
    with pytest.raises(NotAdmitted) as raised, Fairlane(f"postgresql://me:{SECRET}@127.0.0.1:1/app?{parameter}") as app:
        app.jobs.list()
    assert SECRET not in str(raised.value)


def test_ready_settings_and_single_ones_do_not_mix() -> None:
    with pytest.raises(InvalidOption, match="not both"):
        Fairlane("memory://", settings=Settings())
    with pytest.raises(ConfigError, match="no setting"):
        Fairlane(colour="red")  # type: ignore[call-arg]


def test_arguments_and_settings_have_the_same_names() -> None:
    assert {"url", *SettingArguments.__annotations__} == set(NAMES)


def test_queues_given_as_values_stand_beside_the_default_ones() -> None:
    given: Any = {"mail": QueuePolicy(name="mail", slots=2)}
    app = Fairlane("memory://", queues=given)
    assert set(app.runtime.settings.queues) == {"mail", "critical", "default", "bulk"}
