"""The demo: three tenants on a temporary SQLite file, a real foreman with two workers, real numbers.

tasks      what the jobs do              story     who enqueues what, and when
shop       the application workers load  crew      controls the foreman's process, handles Ctrl-C
foreman    starts the foreman            events    what changed in the store, in words
screen     shows it while it happens     summary   the numbers at the end
"""
