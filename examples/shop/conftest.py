"""The tests drop the shop's tables, so they run in a database of their own, never in SHOP_URL."""

import os
from tempfile import TemporaryDirectory

place = TemporaryDirectory(prefix="shop-")
os.environ["SHOP_URL"] = os.environ.get("SHOP_TEST_URL", f"sqlite:///{place.name}/shop.db")  # before shop is imported


def pytest_unconfigure() -> None:
    place.cleanup()
