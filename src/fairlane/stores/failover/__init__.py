"""A store that still takes enqueues while it cannot be reached: `Failover(primary, spool)` over any other."""

from fairlane.stores.failover.replay import Replayed as Replayed
from fairlane.stores.failover.spool import Spool as Spool
from fairlane.stores.failover.store import (
    CameBack as CameBack,
    Failover as Failover,
    News as News,
    RefusesJobs as RefusesJobs,
    ReplayFailed as ReplayFailed,
    SpoolLost as SpoolLost,
    WentAway as WentAway,
)
