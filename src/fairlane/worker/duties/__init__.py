"""Duties: what any worker may do for all, in bounded steps that are safe to repeat. Nobody leads, so nobody is missed.

promoter    jobs whose time has come are ready         every 5 s
reclaimer   what nobody works on any more is taken     every 10 s
firer       due schedules make their jobs              every 5 s and at each full minute
flusher     figures of the last minutes are written    every 15 s
retainer    what is past its age is removed            every 10 min, a thousand jobs a step
declarer    schedules of the code are made known       once
fast_lane   long jobs on a fast lane are reported      every second, without the store
"""

from fairlane.worker.duties.loop import Duties as Duties
from fairlane.worker.duties.report import Duty as Duty, Report as Report
