"""Operations: everything a store can be asked and every change of it, as values, one module for each noun."""

from fairlane.core.ops.alerts import *
from fairlane.core.ops.audit import *
from fairlane.core.ops.base import *
from fairlane.core.ops.breakers import *
from fairlane.core.ops.credentials import *
from fairlane.core.ops.dead_letters import *
from fairlane.core.ops.durable_steps import *
from fairlane.core.ops.enqueue import *
from fairlane.core.ops.events import *
from fairlane.core.ops.health import *
from fairlane.core.ops.job_keys import *
from fairlane.core.ops.jobs import *
from fairlane.core.ops.limits import *
from fairlane.core.ops.pauses import *
from fairlane.core.ops.retention import *
from fairlane.core.ops.schedules import *
from fairlane.core.ops.signals import *
from fairlane.core.ops.statistics import *
from fairlane.core.ops.tenants import *
from fairlane.core.ops.turn import *
from fairlane.core.ops.workers import *
from fairlane.core.ops.workflows import *
