"""The Valkey of the tests starts wherever the project lies."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.servers.valkey import ValkeyServer, server_program


def test_a_program_in_a_folder_that_only_its_owner_may_enter_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as private:
        monkeypatch.setenv("REDIS_SERVER", shutil.copy2(server_program(), Path(private)))
        with ValkeyServer() as server:
            assert server.call("PING") == "PONG"
