"""The foreman: starts worker processes, keeps their heartbeats, restarts the dead, and ends what nobody else can.

    foreman ──setup──────────────▶ worker     imports the application, opens the store
            ◀──────hello or refusal──
    store ◀─Renew── foreman                  the worker is registered before it may claim
            ──registered─────────▶           its engine begins
            ◀──────────────ticks──           twice a second: the loop is alive
            ◀═══════════════board══           shared memory: which attempts run, also when no tick can come
            ──stop────────────────▶           claims end, the grace begins
            ◀───────────────left──

The foreman never imports the application: nothing a task does can stop it from renewing. A worker is renewed while it ticks,
or while everything it runs is inside its hard deadline; else it is killed. Its leases go back at once:

    it left, or we ended it    Retire: given back, uncharged
    it died by itself          Lapse: what had begun is lost and suspect, the rest goes back
    an attempt was stuck       that attempt's deadline is drawn to now and reclaimed (dead as JobStuck), then Retire
"""
