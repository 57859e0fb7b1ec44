"""The demo's application, as its workers load it: `fairlane worker fairlane.cli.demo.shop:app`.

Its settings come from `fairlane.toml` in the working directory, next to the database.
"""

from __future__ import annotations

from fairlane.cli.demo.story import DIGEST_FOR
from fairlane.cli.demo.tasks import register
from fairlane.client.app import Fairlane
from fairlane.client.settings.load import load

app = Fairlane(settings=load(environ={}))
register(app, digest_for=DIGEST_FOR)
