"""Duties: maintenance that any worker may do for all, in bounded steps that are safe to repeat. No worker leads.

`table` lists them; `loop` runs each when it is due.
"""

from fairlane.worker.duties.loop import Duty as Duty, StepReport as StepReport
from fairlane.worker.duties.table import Duties as Duties
