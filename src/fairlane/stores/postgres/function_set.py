"""The functions, views and composite types of the schema as one script, each file behind those it needs."""

from __future__ import annotations

import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.resources import files

_DEFINED = re.compile(r"^create (?:or replace (?:function|view)|type) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_LATE_BOUND = re.compile(r"\$\$.*?\$\$", re.DOTALL)
"""Bodies in PL/pgSQL: what they name is looked up when they run, but for types."""
_TYPE = re.compile(r"^create type \w+ as \(.*?\);\n", re.MULTILINE | re.DOTALL)


@cache
def functions() -> str:
    """Every file of functions/, in an order in which they can be created: types first."""
    texts = {
        f"{noun.name}/{file.name}": file.read_text("utf-8")
        for noun in (files("fairlane.stores.postgres") / "functions").iterdir()
        for file in noun.iterdir()
    }
    whole = "\n".join(texts[name] for name in in_order(texts))
    return "\n".join((*_TYPE.findall(whole), _TYPE.sub("", whole)))


def in_order(texts: dict[str, str]) -> tuple[str, ...]:
    """The names of files, each behind the files that define what it names outside of late-bound bodies."""
    homes: dict[str, set[str]] = {}
    for name, text in texts.items():
        for defined in _DEFINED.findall(text):
            homes.setdefault(defined, set()).add(name)
    needs: TopologicalSorter[str] = TopologicalSorter()
    for name, text in sorted(texts.items()):
        named = set(re.findall(r"\w+", _LATE_BOUND.sub("", _COMMENT.sub("", text))))
        needs.add(name, *sorted({home for word in named & homes.keys() for home in homes[word]} - {name}))
    return tuple(needs.static_order())
