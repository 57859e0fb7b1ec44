"""Figures for Prometheus, in its text format.

    from fairlane.metrics import CONTENT_TYPE, aexposition
    body = await aexposition(app)                      every tenant, the busiest by name, the rest as `other`
    body = await aexposition(app, tenant="acme")       one tenant's alone

Counters count from the first time a process is asked, as those of any process do: ask each process under an address of its own. What is
asked of the store is bounded and kept for ten seconds, however often somebody scrapes.
"""

from fairlane.extras import needed_for

with needed_for("fairlane.metrics", "dashboard"):
    from fairlane.metrics.scrape import (
        CONTENT_TYPE as CONTENT_TYPE,
        aexposition as aexposition,
        exposition as exposition,
    )
