"""The memory store: facts in plain Python, one file for each kind of operation.

lines      ready jobs in the order they are claimed       facts     the tables
moving     from place to place, whole at every step        showing   rows as people see them
enqueueing  claiming  settling  reclaiming  turning         what clients and workers do
reporting  breaking  scheduling                             what workers say, share and fire
acting  reviewing  pausing  reading  counting               what people do and ask
limiting  admitting  holding  aging  tenants  explaining    limits, who is under them, why a job waits
rules  room  rates  census                                  what is allowed, what is left of it, what was counted
keeping  listening                                          retention, wake-ups
"""

from fairlane.stores.memory.store import MemoryStore as MemoryStore
