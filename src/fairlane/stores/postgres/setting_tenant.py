"""Telling the server whose rows a caller's transaction may see: the setting `fairlane.tenant`, gone with the transaction."""

from __future__ import annotations

import asyncio

from fairlane.errors import FairlaneError, NoTransaction, PermissionDenied
from fairlane.stores.postgres.borrowed import awaited, blocking, driver_errors, told

IDLE = 0
"""libpq's word for a connection outside any transaction."""

# A transaction is one tenant's to its end: what is set stays, and the answer says whose it is.
_SET = (
    "select set_config('fairlane.tenant', case when coalesce(current_setting('fairlane.tenant', true), '') in ('', %s::text) "
    "then %s::text else current_setting('fairlane.tenant', true) end, true)"
)
_READ = "select current_setting('fairlane.tenant', true)"


def set_tenant(conn: object, tenant: str) -> None:
    """Set it on a connection of the blocking kind."""
    try:
        send, driver = blocking(conn)
        [(in_force,)] = send(_SET, (tenant, tenant))
        lasts = _is_in_transaction(driver)
        if lasts is None:
            lasts = send(_READ, ())[0][0] == in_force
    except driver_errors() as error:
        raise told(error) from error
    _check(tenant, in_force, lasts=lasts)


async def aset_tenant(conn: object, tenant: str) -> None:
    """Set it on a connection of either kind; a blocking one is used in a thread."""
    try:
        send, driver = await awaited(conn)
        if send is None:
            await asyncio.to_thread(set_tenant, conn, tenant)
            return
        [(in_force,)] = await send(_SET, (tenant, tenant))
        lasts = _is_in_transaction(driver)
        if lasts is None:
            lasts = (await send(_READ, ()))[0][0] == in_force
    except FairlaneError:  # PermissionDenied is an OSError, too
        raise
    except driver_errors() as error:
        raise told(error) from error
    _check(tenant, in_force, lasts=lasts)


def _check(tenant: str, in_force: str, *, lasts: bool) -> None:
    if not lasts:
        raise NoTransaction
    if in_force != tenant:
        raise PermissionDenied(f'tenant "{tenant}" in a transaction of another', in_force)


def _is_in_transaction(driver: object) -> bool | None:
    """Asked of the driver, which knows without asking the server; None: this one does not say."""
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return None if status is None else int(status) != IDLE
