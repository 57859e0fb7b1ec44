"""The guide to workflows: its blocks run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "workflows.md"


@pytest.mark.requirement("L18")
def test_the_blocks_of_the_guide_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 12
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    names["app"].close()  # type: ignore[attr-defined]
