"""The foreman: starts worker processes, sends their heartbeats, restarts those that died, and kills those that hang.

    foreman ──setup────────────────▶ worker     imports the application, opens the store
            ◀─────hello or refusal──
    store ◀─Renew── foreman                     registers the worker before it may claim
            ──registered───────────▶            its engine starts
            ◀────────────────ticks──            twice a second: its loop runs
            ◀════════════════board══            shared memory: its running attempts, also while its loop is blocked
            ──stop─────────────────▶            claims end, the grace begins
            ◀─────────────────left──

The foreman never imports the application: no task can delay its heartbeats. A worker is renewed while it ticks, or
while all its running attempts are within their hard deadlines; else it is killed. Its leases are returned at once:

    it exited or was ended     Retire: released, uncharged
    it crashed                 Lapse: started attempts are lost and suspect, the rest is released
    an attempt was stuck       that attempt's deadline is set to now and reclaimed (dead as JobStuck), then Retire
"""
