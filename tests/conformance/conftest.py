"""Every store, sync and async. The Redis store is being built: it answers for the nouns that are whole."""

from __future__ import annotations

import os

import pytest

from tests.support.stores import face, ground, new_face, scene

__all__ = ["face", "ground", "new_face", "scene"]

WHOLE = {"test_claim_lines", "test_claim_order", "test_enqueue_rates", "test_limits_claims"}
"""Modules whose tests the Redis store passes; FAIRLANE_REDIS=all runs the others too."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("FAIRLANE_REDIS") == "all":
        return
    early = [item for item in items if "[redis-" in item.nodeid and item.path.stem not in WHOLE]
    if early:
        config.hook.pytest_deselected(items=early)
        items[:] = [item for item in items if item not in set(early)]
