"""Tracebacks are folded by one rule: nothing is lost on pages, and Fairlane's frames are one line elsewhere."""

from __future__ import annotations

import pytest

from fairlane import errors
from fairlane.core.tracebacks import folded, parts_of

TEXT = """Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/fairlane/worker/runner.py", line 200, in _attempt
    result = await task.function(**arguments)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/venv/lib/python3.12/site-packages/fairlane/client/resources.py", line 20, in scoped
    return await function(**arguments)
  File "/home/me/fairlane/shop.py", line 7, in charge
    connect()
  File "/venv/lib/python3.12/site-packages/psycopg/connection.py", line 1, in connect
    raise OperationalError
psycopg.OperationalError: down
"""


def test_frames_of_fairlane_are_one_line() -> None:
    assert folded(TEXT) == (
        "Traceback (most recent call last):\n"
        "  … 2 frames of Fairlane\n"
        '  File "/home/me/fairlane/shop.py", line 7, in charge\n'
        "    connect()\n"
        '  File "/venv/lib/python3.12/site-packages/psycopg/connection.py", line 1, in connect\n'
        "    raise OperationalError\n"
        "psycopg.OperationalError: down"
    )


@pytest.mark.parametrize("path", ["api/views.py", "web/pages.py", "worker/tasks.py", "errors.py", "__init__.py"])
def test_a_project_in_a_directory_called_fairlane_is_shown_in_full(path: str) -> None:
    frame = f'  File "/home/me/fairlane/{path}", line 7, in charge\n    connect()'
    assert folded(frame) == frame
    assert [part.folded for part in parts_of(frame)] == [0]


def test_frames_of_a_checkout_are_fairlane_s_too() -> None:
    assert folded(f'  File "{errors.__file__}", line 7, in shown') == "  … 1 frame of Fairlane"


def test_a_page_folds_libraries_too_and_leaves_nothing_out() -> None:
    parts = parts_of(TEXT)
    assert [part.folded for part in parts] == [0, 2, 0, 1, 0]
    assert "\n".join(part.text for part in parts) == TEXT.rstrip()


def test_text_that_is_no_traceback_stays() -> None:
    assert folded("killed") == "killed"
    assert folded("") == ""
