"""The house rules that a test can hold: names of modules and classes, sizes, columns of SQL, retired words."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "fairlane"
SUITE = SRC / "testing" / "conformance"
MODULES = sorted(path for path in SRC.rglob("*.py") if not (path.parent == SUITE and path.stem.startswith("test_")))
SQL = sorted(SRC.rglob("*.sql"))

ESTABLISHED = {"testing"}
"""Words in -ing that name a thing."""

NOUNS = {path.stem for path in (SRC / "core" / "ops").glob("*.py")} | {"metrics", "queues", "tasks", "tokens"}
"""What the layers are about: a module of such a name means the same thing in each of them."""

ROLES = {
    "acts": "changes of jobs by hand",
    "app": "an application object: the client's, the API's",
    "borrowed": "operations on the caller's own connection, in each store",
    "claims": "jobs leased to those who claim them: in a store, and by hand",
    "config": "how a worker is configured, and the command that shows settings",
    "connection": "a store's connections",
    "demo": "the demonstration",
    "errors": "Fairlane's errors, and what a driver's mean in them",
    "foreman": "the foreman, and the demonstration's own",
    "heartbeat": "a worker's heartbeat: what it reports, and how its foreman sends it",
    "listener": "how a store hears of new work",
    "main": "the main program of a process",
    "messages": "what two processes send each other",
    "migrator": "brings a store's schema up to date",
    "options": "what a call or a command takes",
    "progress": "progress and log lines of a running attempt",
    "records": "jobs put together from their facts",
    "resources": "what tasks are given and what is closed behind them",
    "steps": "code written once for both colours, as a generator",
    "store": "a store as a whole",
    "why": "why a job waits",
}
"""Stems that several packages may have, with the one meaning they have in all of them."""

WINGS = {"stores/redis": 40, "stores/failover": 5, "web": 30, "supervisors": 20, "contrib": 15, "testing": 16}
"""Packages with a plan of their own, and how many modules each may have."""

LAYERS = {
    "stores/sqlite": {"base"},
    "stores/postgres/functions": {"base", "health"},
    "client/admin": {"base", "credentials", "durable_steps", "enqueue", "health", "retention", "turn"},
}
"""Where each noun of core/ops has a module, a package or a folder, and which have none there."""

SHARED = {"Cancel": "the operation, whose SQL function bears its name, and what a task raises to end its own job"}

RETIRED = re.compile(
    r"\b(heed(s|ed|ing)?|look(s|ed|ing)? round|said out loud|go(es)? on behind|gave nothing|so many)\b", re.I
)
LONGEST = 500
LONGEST_OF_ERRORS = 540
"""One module by rule, an entry for each error."""
"""Lines; only the errors come near it, one class for each thing that can go wrong under one table of contents."""


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def test_no_module_is_named_after_an_activity() -> None:
    assert [name_of(path) for path in MODULES if path.stem.endswith("ing") and path.stem not in ESTABLISHED] == []


def test_no_class_name_stands_for_two_things() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert {name for name, where in places.items() if len(where) > 1} == set(SHARED)


def test_a_stem_in_several_packages_is_a_noun_of_the_layers_or_a_listed_role() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        if not path.stem.startswith("__"):
            places[path.stem].append(name_of(path))
    known = NOUNS | set(ROLES)
    assert {stem: where for stem, where in places.items() if len(where) > 1 and stem not in known} == {}


def test_each_noun_of_the_operations_has_its_address_in_every_layer() -> None:
    nouns = {path.stem for path in (SRC / "core" / "ops").glob("*.py")} - {"__init__"}
    missing = {
        f"{layer}/{noun}"
        for layer, none_there in LAYERS.items()
        for noun in nouns - none_there
        if not (SRC / layer / f"{noun}.py").exists() and not (SRC / layer / noun).is_dir()
    }
    assert missing == set()


def test_there_are_no_more_modules_than_a_reader_can_place() -> None:
    rooms = Counter(next((wing for wing in WINGS if path.is_relative_to(SRC / wing)), "the house") for path in MODULES)
    assert {room: count for room, count in rooms.items() if count > WINGS.get(room, 329)} == {}


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {name_of(path): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert lengths.pop("errors.py") <= LONGEST_OF_ERRORS
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_lines_of_sql_fit_120_columns() -> None:
    found = [
        f"{name_of(path)}:{number}"
        for path in SQL
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert found == []


def test_retired_words_stay_retired() -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in MODULES + SQL
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if RETIRED.search(line)
    ]
    assert found == []


def test_every_module_says_in_its_first_line_what_it_gives() -> None:
    found = []
    for path in MODULES:
        text = path.read_text("utf-8")
        first = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        if text and not first.endswith((".", ":")):
            found.append(name_of(path))
    assert found == []
