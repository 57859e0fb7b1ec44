"""Operations: everything a store can be asked or told, as values.

enqueue  put jobs in                        turn  the worker's: claim, start, renew, settle, reclaim
act      what people do, audited            read  what people and programs ask
keep     health, retention, purge           workers  seen from outside, notes and figures
breakers shared circuit breakers            schedules  cron without a leader
pauses   claims stopped by hand
"""

from fairlane.core.ops.act import (
    Acknowledge as Acknowledge,
    Bury as Bury,
    Cancel as Cancel,
    DeadLetterAct as DeadLetterAct,
    Discard as Discard,
    Fail as Fail,
    JobAct as JobAct,
    Reprocess as Reprocess,
    Reset as Reset,
    Resolve as Resolve,
)
from fairlane.core.ops.base import ALL_TENANTS as ALL_TENANTS, Op as Op, Scope as Scope, only as only
from fairlane.core.ops.breakers import (
    Admit as Admit,
    BreakerAct as BreakerAct,
    Breakers as Breakers,
    ForceBreaker as ForceBreaker,
    ListBreakers as ListBreakers,
    Report as Report,
    ResetBreaker as ResetBreaker,
)
from fairlane.core.ops.enqueue import Enqueue as Enqueue, EnqueueResult as EnqueueResult, Receipt as Receipt
from fairlane.core.ops.keep import (
    Check as Check,
    Health as Health,
    Purge as Purge,
    Purged as Purged,
    Retain as Retain,
    Retained as Retained,
)
from fairlane.core.ops.pauses import (
    ListPauses as ListPauses,
    Pause as Pause,
    PauseClaims as PauseClaims,
    PauseKind as PauseKind,
    Pauses as Pauses,
    ResumeClaims as ResumeClaims,
)
from fairlane.core.ops.read import (
    COUNT_CAP as COUNT_CAP,
    MAX_PAGE as MAX_PAGE,
    AuditPage as AuditPage,
    AuditRecord as AuditRecord,
    DeadLetterDetail as DeadLetterDetail,
    DeadLetterFilter as DeadLetterFilter,
    DeadLetterPage as DeadLetterPage,
    GetDeadLetter as GetDeadLetter,
    GetJob as GetJob,
    GetStats as GetStats,
    JobDetail as JobDetail,
    JobFilter as JobFilter,
    JobPage as JobPage,
    PageAudit as PageAudit,
    PageDeadLetters as PageDeadLetters,
    PageJobs as PageJobs,
    QueueStats as QueueStats,
    Stats as Stats,
)
from fairlane.core.ops.schedules import (
    Declared as Declared,
    DeclareSchedules as DeclareSchedules,
    Fire as Fire,
    Fired as Fired,
    ListSchedules as ListSchedules,
    PauseSchedule as PauseSchedule,
    Planned as Planned,
    RemoveSchedule as RemoveSchedule,
    RunSchedule as RunSchedule,
    ScheduleAct as ScheduleAct,
    Schedules as Schedules,
)
from fairlane.core.ops.turn import (
    LEASE_S as LEASE_S,
    MAX_CRASHES as MAX_CRASHES,
    Mark as Mark,
    Promote as Promote,
    Promoted as Promoted,
    Reclaim as Reclaim,
    Reclaimed as Reclaimed,
    ReclaimResult as ReclaimResult,
    Refusal as Refusal,
    Renew as Renew,
    Renewed as Renewed,
    Retire as Retire,
    Retired as Retired,
    Start as Start,
    Take as Take,
    Turn as Turn,
    TurnResult as TurnResult,
    Want as Want,
)
from fairlane.core.ops.workers import (
    LOG_LINES as LOG_LINES,
    AddStats as AddStats,
    Lapse as Lapse,
    ListWorkers as ListWorkers,
    LogLine as LogLine,
    Note as Note,
    Noted as Noted,
    ReadStats as ReadStats,
    StatPage as StatPage,
    StatRow as StatRow,
    StatsAdded as StatsAdded,
    WorkerRecord as WorkerRecord,
    Workers as Workers,
)
