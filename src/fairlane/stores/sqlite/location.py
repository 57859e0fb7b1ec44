"""Where the file is, and whether SQLite can be trusted with that place."""

from __future__ import annotations

import os
from pathlib import Path

from fairlane.errors import ConfigError

# Their locks are advisory at best: two hosts would write one file at once.
NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ncpfs", "lustre", "beegfs", "ceph", "glusterfs", "ocfs2", "gfs2"}
    | {
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph-fuse",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.rclone",
        "davfs",
        "fuse.davfs2",
    }
)
MOUNTS = Path("/proc/mounts")


def located(path: str | os.PathLike[str], *, allow_network_filesystem: bool = False, mounts: Path = MOUNTS) -> Path:
    """The absolute path of a file SQLite may use, or a ConfigError that says what is wrong with it."""
    text = os.fspath(path)
    if text in ("", ":memory:") or text.startswith("file:") or "mode=memory" in text:
        raise ConfigError(
            f"sqlite path {text!r}: expected a file. Each connection would have a database of its own in memory; "
            "use memory:// for jobs that may go with the process"
        )
    if "\0" in text:
        raise ConfigError(f"sqlite path {text!r}: expected a path without NUL")
    place = Path(os.path.realpath(text))
    directory = place.parent
    if place.is_dir():
        raise ConfigError(
            f"sqlite path {str(place)!r} is a directory; name a file in it, such as {place / 'fairlane.db'}"
        )
    if not directory.is_dir():
        raise ConfigError(f"sqlite path {str(place)!r}: the directory {directory} is not there; create it, mode 0700")
    if place.exists() and not place.is_file():
        raise ConfigError(f"sqlite path {str(place)!r} is not a plain file; name one")
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ConfigError(
            f"sqlite path {str(place)!r}: this process may not write in {directory}, where SQLite keeps its journal too"
        )
    filesystem = filesystem_of(directory, mounts)
    if filesystem in NETWORK_FILESYSTEMS and not allow_network_filesystem:
        raise ConfigError(
            f"sqlite path {str(place)!r} is on a network file system ({filesystem}), where SQLite's locks do not hold: "
            "use a local disk, or PostgreSQL; allow_network_filesystem=True if one host alone ever opens it"
        )
    return place


def filesystem_of(directory: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system a directory is on; None where the system does not say."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    best, found = -1, None
    for line in lines:
        _device, at, kind, *_ = line.split(" ")
        at = at.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        # `>=`: of two mounts on one directory the later one is seen.
        if (at == "/" or directory == Path(at) or Path(at) in directory.parents) and len(at) >= best:
            best, found = len(at), kind
    return found


def create_if_missing(place: Path) -> None:
    """Make a new file readable by its owner alone. SQLite gives its journal files the same mode.

    An existing file is never opened here: closing it again would drop the locks this process holds on it through
    SQLite.
    """
    try:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigError(f"sqlite path {str(place)!r} cannot be created: {error.strerror}") from error
