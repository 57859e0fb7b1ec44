"""The demonstration: three tenants on a SQLite file of its own, real operations, nothing made up.

tasks    what the jobs do            story     who enqueues what, and when
shift    claims, runs and settles    watching  reads back what became of it
screen   shows it while it happens   summary   the numbers at the end
"""
