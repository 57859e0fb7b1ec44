"""An application in two versions, for processes of their own: `tests.upgrade.shop:app`, SHOP_VERSION 1 or 2.

Version 2 gives `shop.bill` and `shop.receipt` another payload version, `shop.pack` an optional argument, `shop.pay` one
more step, and adds a task and a schedule.
Its orders make children of the new shapes. Each task writes a line to the file that YARD_DIARY names.
"""

from __future__ import annotations

import os
import time
from typing import Any

from fairlane import Fairlane, step, wait_for


def write(what: str, number: int) -> None:
    fd = os.open(os.environ["YARD_DIARY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{what} {number}\n".encode())
    os.close(fd)


def shop(version: int, url: str) -> Fairlane:
    app = Fairlane(url, profile="development")
    return old(app) if version == 1 else new(app)


def old(app: Fairlane) -> Fairlane:
    @app.task(name="shop.order")
    def order(number: int) -> None:
        time.sleep(0.005)
        write("order", number)
        bill.enqueue(number)
        pack.enqueue(number)

    @app.task(name="shop.pay")
    def pay(number: int) -> dict[str, int]:
        step("charge", write, "charge", number)
        wait_for("approved", key=number, timeout=60)
        return {"paid": number}

    @app.task(name="shop.receipt")
    def receipt(paid: dict[str, int]) -> str:
        raise AssertionError("the old workers are gone by then")

    @app.task(name="shop.bill")
    def bill(number: int) -> None:
        write("bill", number)

    @app.task(name="shop.pack", isolated=bool(os.environ.get("SHOP_ISOLATED")))
    def pack(number: int) -> None:
        write("pack", number)

    return app


def new(app: Fairlane) -> Fairlane:
    @app.task(name="shop.order")
    def order(number: int, gift: bool = False) -> None:
        time.sleep(0.005)
        write("order", number)
        bill.enqueue(number, "EUR")
        pack.enqueue(number, gift=True)
        thank.enqueue(number)

    @app.task(name="shop.pay")
    def pay(number: int) -> dict[str, int]:
        step("charge", write, "charge", number)
        wait_for("approved", key=number, timeout=60)
        step("thank", write, "thank", number)
        return {"paid": number}

    @app.task(name="shop.receipt", version=2)
    def receipt(sum: int, copies: int) -> str:
        return f"{sum} in {copies} copies"

    @receipt.upcast(1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {"sum": payload["paid"]["paid"], "copies": 2}

    @app.task(name="shop.bill", version=2)
    def bill(number: int, currency: str) -> None:
        assert currency == "EUR"
        write("bill", number)

    @bill.upcast(1)
    def _(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "currency": "EUR"}

    @app.task(name="shop.pack", isolated=bool(os.environ.get("SHOP_ISOLATED")))
    def pack(number: int, gift: bool = False) -> None:
        write("pack", number)

    @app.task(name="shop.thank")
    def thank(number: int) -> None:
        write("thank", number)

    app.schedules.declare("billing", cron="* * * * *", args={"number": 0, "currency": "EUR"})(bill)
    return app


if "SHOP_VERSION" in os.environ:
    app = shop(int(os.environ["SHOP_VERSION"]), os.environ["YARD_URL"])
