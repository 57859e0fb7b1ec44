"""`app.signals`: says that something has happened, for jobs that wait for it."""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID

from fairlane.client.admin.filters import page_size
from fairlane.client.context import in_scope, job_in_force
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Through, Verbs, ask, both
from fairlane.core.ids import SystemTenant
from fairlane.core.names import check_key, check_own_tenant, check_signal_name
from fairlane.core.ops import Emit, Emitted, ListSignals, SignalPage


class SignalAdmin(Verbs):
    """Methods for signals."""

    __slots__ = ()

    def _emit(
        self,
        name: str,
        data: object = None,
        *,
        tenant: str | int | SystemTenant | None = None,
        key: str | int | None = None,
        idempotency_key: str | None = None,
        conn: object | None = None,
    ) -> Steps[Emitted]:
        """Keep a signal, and let each job go on that waits for this name and key in this tenant.

        A job that comes to wait later finds it, for `retain_signals_days`. With `conn` it is part of the caller's own
        transaction, and reaches jobs that wait within about two seconds of its commit. An `idempotency_key` makes a
        repeated call, such as a webhook sent twice, one signal.
        """
        preparer = self._runtime.preparer
        named = None if tenant is None else check_own_tenant(tenant)
        owner = preparer.tenant(named, job_in_force.get(), "a signal") or self._runtime.settings.default_tenant
        checked, key_text = check_signal_name(name), signal_key(key)
        own_id = preparer.new_id() if idempotency_key is None else _id_of(owner, checked, key_text, idempotency_key)
        op = Emit(
            id=own_id,
            tenant=owner,
            name=checked,
            key=key_text,
            data=preparer.signal_data(checked, data),
            deliver=conn is None,
        )
        answer: Emitted = yield Through(conn, op)
        return answer

    def _list(
        self,
        *,
        name: str | None = None,
        key: str | int | None = None,
        tenant: str | int | None = None,
        limit: int = 50,
    ) -> Steps[SignalPage]:
        """The newest signals that are kept, newest first."""
        return (
            yield from ask(
                ListSignals(
                    scope=in_scope(tenant),
                    name=None if name is None else check_signal_name(name),
                    key=None if key is None else signal_key(key),
                    limit=page_size(limit),
                )
            )
        )

    emit, aemit = both(_emit, Right.ACT)
    list, alist = both(_list, Right.READ)


def signal_key(key: str | int | None) -> str:
    """What a signal is about, as text; None and empty text: nothing in particular."""
    if key is None or key == "":
        return ""
    return check_key("key", str(key) if isinstance(key, int) and not isinstance(key, bool) else key)


def _id_of(tenant: str, name: str, key: str, idempotency_key: str) -> UUID:
    """The id that the same call always makes."""
    parts = (tenant, name, key, check_key("idempotency_key", idempotency_key))
    return UUID(bytes=sha256("\0".join(parts).encode()).digest()[:16])
