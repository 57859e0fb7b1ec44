"""Runs the Python blocks of a page in the current directory, as a reader would: `python page_program.py PAGE`.

A block with a title, ```python title="shop.py", is written into that file. The others run one after the other in one
namespace; one that awaits has an event loop of its own.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from pathlib import Path

BLOCK = re.compile(r'^```python(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def main(page: Path) -> None:
    text = page.read_text("utf-8")
    module = sys.modules["page"] = types.ModuleType("page")
    sys.path.insert(0, "")
    for found in BLOCK.finditer(text):
        title, code = found.groups()
        if title is not None:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(code, "utf-8")
            continue
        before = "\n" * text.count("\n", 0, found.start(2))  # so that a traceback names the page's own line
        compiled = compile(before + code, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(compiled, vars(module)))
        else:
            exec(compiled, vars(module))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
