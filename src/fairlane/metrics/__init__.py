"""Metrics in the text format of Prometheus.

    from fairlane.metrics import CONTENT_TYPE, aexposition
    body = await aexposition(app)                      all tenants, the busiest by name, the rest as `other`
    body = await aexposition(app, tenant="acme")       one tenant's alone

Counters start with the first scrape of a process: scrape each process under an address of its own. Reads of the store
are bounded, and kept for ten seconds however often somebody scrapes.
"""

from fairlane.extras import needed_for

with needed_for("fairlane.metrics", "dashboard"):
    from fairlane.metrics.scrape import (
        CONTENT_TYPE as CONTENT_TYPE,
        aexposition as aexposition,
        exposition as exposition,
    )
