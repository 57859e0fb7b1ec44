"""Duties: what any worker may do for all, in bounded steps that are safe to repeat. Nobody leads, so nobody is missed.

promoter    jobs whose time has come are ready         every 5 s
reclaimer   what nobody works on any more is taken     every 10 s
firer       due schedules make their jobs              every 5 s and at each full minute
flusher     figures of the last minutes are written    every 15 s
retainer    what is past its age is removed            every 10 min, a thousand jobs a step
declarer    schedules of the code are made known       once
fast_lane   long jobs on a fast lane are reported      every second, without the store
teller      events are told                            every 3 s, every second while somebody watches
weigher     weights and limits people set are read     every 3 s
unholder    held jobs go on where there is room        every second where limits hold jobs, else every 10 s
ager        jobs that waited long move up              twice in each span of a queue that asks for it
tenants     tenants with jobs become known             every 10 s, one worker at a time
roll_up     jobs enqueued are added to the figures     every 15 s, one worker at a time
forget      old events and credentials are removed     every 10 min, one worker at a time
seal        the audit gets its chain                   every 5 s, one worker at a time
alerts      rules are looked at, people are told       every 15 s, one worker at a time
"""

from fairlane.worker.duties.loop import Duties as Duties
from fairlane.worker.duties.report import Duty as Duty, Report as Report
