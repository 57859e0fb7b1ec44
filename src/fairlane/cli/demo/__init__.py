"""The demonstration: three tenants on a SQLite file of its own, a real foreman with two workers, nothing made up.

tasks      what the jobs do              story     who enqueues what, and when
shop       the application workers load  crew      the foreman's process, from its start to its end
watching   reads back what happens       events    what changed since the last look, in words
screen     shows it while it happens     summary   the numbers at the end
running    plays the story through       interrupts  what a Ctrl-C asks for
"""
