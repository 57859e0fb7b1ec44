"""Operations that people do by hand refuse what is no text, whichever store they are for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlane.core.ops import ALL_TENANTS, Op
from fairlane.core.ops.base import Act
from fairlane.errors import InvalidOption
from fairlane.testing.conformance.samples import Making
from tests.isolation.every_operation import samples

MAKING = Making()
EACH = samples(
    MAKING, scope=ALL_TENANTS, tenant="acme", job=MAKING.job_id(), letter=1, worker=MAKING.worker_id()
).values()
BY_HAND = [op for op in EACH if "notes" in type(op).__struct_fields__]
each_act = pytest.mark.parametrize("op", BY_HAND, ids=lambda op: type(op).__name__)


@each_act
@pytest.mark.parametrize("given", [{}, 5, b"x", "a\x00b", "half \ud800"], ids=str)
def test_an_act_refuses_words_that_are_no_text(op: Op[Any], given: Any) -> None:
    for field in getattr(op, "words", ("by", "notes")):
        with pytest.raises(InvalidOption, match=field):
            replace(op, **{field: given})


@each_act
def test_an_act_keeps_any_words_that_are_text(op: Any) -> None:
    assert replace(op, notes="").notes == ""
    assert replace(op, by="Ada\n\u2028 ☂", notes="{}\n").notes == "{}\n"


def test_whatever_is_done_by_somebody_for_some_reason_is_an_act() -> None:
    known = {"by", "notes"}
    others = [type(op).__name__ for op in EACH if known <= set(type(op).__struct_fields__) and not isinstance(op, Act)]
    assert others == ["DeclareSchedules"], "code declares schedules too, by nobody"
