"""Every test and fixture of the suite: `from fairlane.testing.conformance.suite import *` in a test module of yours.

The module, or a conftest, has a fixture `open_store` of session scope: a function that opens a new, empty store.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import pytest

from fairlane.testing import conformance

pytest.register_assert_rewrite(conformance.__name__)

from fairlane.testing.conformance.faces import face, new_face, scene, waiting  # noqa: E402

MODULES = [
    import_module(f"{conformance.__name__}.{found.name}")
    for found in iter_modules(conformance.__path__)
    if found.name.startswith("test_")
]
TESTS = {name: test for module in MODULES for name, test in vars(module).items() if name.startswith(("test_", "Test"))}

globals().update(TESTS)
__all__ = ["face", "new_face", "scene", "waiting", *TESTS]  # noqa: PLE0604
