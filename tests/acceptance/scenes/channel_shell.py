"""Commands as a team with a channel for e-mail types them, in the folder of its application."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

APPLICATION = """
import os
from fairlane import Fairlane
from fairlane.supervisors.channels import Channels
from fairlane.supervisors.providers import SmtpMailer

app = Fairlane()
channels = Channels(app)
channels.add("email", SmtpMailer("127.0.0.1", port=int(os.environ["SMTP_PORT"]), sender="shop@example.com", security="none"))
"""


class Shell:
    """`dsn` is where commands work; a worker may log in as somebody else."""

    def __init__(self, folder: Path, dsn: str, smtp_port: int) -> None:
        (folder / "channels.py").write_text(APPLICATION)
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
        self.environment = {**kept, "FAIRLANE_URL": dsn, "SMTP_PORT": str(smtp_port), "LOGNAME": "mira"}
        self.log = folder / "worker.log"

    def run(self, *words: str, exits: int = 0, **env: str) -> str:
        command = [sys.executable, "-m", "fairlane", *words]
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ran.returncode == exits, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    @contextmanager
    def worker(self, **env: str) -> Iterator[None]:
        command = [sys.executable, "-m", "fairlane", "worker", "--app", "channels:app", "--processes", "1"]
        with (
            self.log.open("w") as log,
            subprocess.Popen(
                command, cwd=self.folder, env={**self.environment, **env}, stdout=log, stderr=log
            ) as worker,
        ):
            try:
                yield
            finally:
                worker.terminate()
