"""An enqueue in a transaction that is prepared first and committed later."""

from __future__ import annotations

import psycopg
import pytest

from fairlane import Fairlane
from tests.faults.conftest import own_place, own_server
from tests.faults.places import Place

__all__ = ["own_place", "own_server"]


def test_an_application_that_never_notifies_may_prepare_its_transactions(own_place: Place) -> None:
    with Fairlane(own_place.dsn) as app, Fairlane(own_place.dsn, notify="never") as quiet:
        with psycopg.connect(own_place.dsn) as conn:
            app.task(name="t")(lambda: None).using(conn=conn).enqueue()
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="LISTEN, UNLISTEN, or NOTIFY"):
                conn.execute("prepare transaction 'noisy'")
            conn.rollback()
            handle = quiet.task(name="t")(lambda: None).using(conn=conn).enqueue()
            conn.execute("prepare transaction 'quiet'")
        assert own_place.jobs() == 0
        own_place.rows("commit prepared 'quiet'")
        assert handle.status() == "pending"
