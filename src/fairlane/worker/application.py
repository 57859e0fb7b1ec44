"""Imports the application that a worker or a command is to use."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fairlane.errors import ConfigError, nearest

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane

DEFAULT_NAME = "app"


def load_application(reference: str, directory: Path | None = None) -> Fairlane:
    """Import the `Fairlane` named by `module:name`; the working directory is on the path.

    What the module prints goes to stderr: stdout is for the command's data.
    """
    from fairlane.client.app import Fairlane

    place, _, name = reference.partition(":")
    if not place or not all(part.isidentifier() for part in place.split(".")):
        raise ConfigError(f'app = "{reference}": expected module:name, as in shop.jobs:app')
    module = _imported(reference, place, directory or Path.cwd())
    found: object = module
    for part in (name or DEFAULT_NAME).split("."):
        found = getattr(found, part, None)
    if isinstance(found, Fairlane):
        return found
    here = [key for key, value in vars(module).items() if isinstance(value, Fairlane)]
    if found is not None:
        raise ConfigError(f'app = "{reference}" is a {type(found).__name__}, not a Fairlane.{_instead(place, here)}')
    raise ConfigError(f'app = "{reference}": {place} has no "{name or DEFAULT_NAME}".{_instead(place, here)}')


def _imported(reference: str, place: str, directory: Path) -> ModuleType:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is not None and (place == error.name or place.startswith(f"{error.name}.")):
            known = [
                path.stem for path in directory.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
            ]
            raise ConfigError(
                f'app = "{reference}": no module "{error.name}" from {directory}.{nearest(error.name, known)}'
            ) from error
        raise _broken(reference, place, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(reference, place, error) from error


def _broken(reference: str, place: str, error: BaseException) -> ConfigError:
    said, line = str(error), ""
    if isinstance(error, SyntaxError) and error.filename is not None:  # The file with the mistake has no frame.
        said, line = error.msg, f" at {error.filename}:{error.lineno}"
    else:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
        line = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return ConfigError(
        f'app = "{reference}": importing {place} raised {type(error).__name__}: {" ".join(said.split())}{line}; '
        "FAIRLANE_DEBUG=1 shows the traceback"
    )


def _is_theirs(filename: str) -> bool:
    return "importlib" not in filename and filename != __file__


def _instead(place: str, here: list[str]) -> str:
    return f" There is {', '.join(f'{place}:{name}' for name in here)}." if here else " It holds no Fairlane at all."
