"""The account a test server runs under: ours, or an unprivileged one when we are root (databases refuse root)."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

FALLBACK_TEMP_DIRS = ("/tmp", "/var/tmp")


class Account(NamedTuple):
    uid: int
    gid: int
    name: str

    @property
    def is_other(self) -> bool:
        return self.uid != os.geteuid()

    def popen(
        self, command: Sequence[str], *, cwd: str | Path, log: int | IO[bytes], merge_stderr: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a command under this account, in a session of its own so that a Ctrl-C is not for it."""
        return subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT if merge_stderr else None,
            env=_environment(),
            start_new_session=True,
            user=self.uid if self.is_other else None,
            group=self.gid if self.is_other else None,
            extra_groups=[] if self.is_other else None,
        )

    def run(self, command: Sequence[str], *, cwd: str | Path = "/") -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end under this account; the caller looks at its return code."""
        process = self.popen(command, cwd=cwd, log=subprocess.PIPE)
        output, _ = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def can_run(self, command: Sequence[str]) -> bool:
        try:
            return self.run(command).returncode == 0
        except OSError:
            return False

    def own(self, path: Path) -> None:
        """Hand a file or a directory tree to this account."""
        if not self.is_other:
            return
        for entry in (path, *path.rglob("*")):
            os.chown(entry, self.uid, self.gid, follow_symlinks=False)

    def make_directory(self, prefix: str) -> Path:
        """A new private temporary directory that this account can reach and write."""
        for parent in dict.fromkeys((tempfile.gettempdir(), *FALLBACK_TEMP_DIRS)):
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self.own(path)
            if not self.is_other or self.can_run(["/bin/sh", "-c", f"cd '{path}' && : > probe && rm probe"]):
                return path
            shutil.rmtree(path, ignore_errors=True)
        raise RuntimeError(
            f"the account {self.name} can write in none of {tempfile.gettempdir()}, {', '.join(FALLBACK_TEMP_DIRS)}; "
            "set TMPDIR to a directory it can reach"
        )


@cache
def server_account(preferred: tuple[str, ...] = ("nobody", "postgres", "daemon")) -> Account:
    """Who test servers run as: us, unless we are root."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), str(os.geteuid()))
    for name in preferred:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(entry.pw_uid, entry.pw_gid, name)
    raise RuntimeError(
        f"running as root and none of the accounts {', '.join(preferred)} exists; run the tests as a user"
    )


def _environment() -> dict[str, str]:
    """Our environment without what steers PostgreSQL programs from outside."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C", "TZ": "UTC"}
