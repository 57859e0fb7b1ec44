"""Attempts in processes of their own: they can be killed, capped in memory, and take nobody with them.

worker process                       child process (one attempt at a time, kept warm)
  Children.run(lease) ──frame──▶  decode, run as the current job, decide
                      ◀──frames─  what it says of itself, then the outcome
  past its timeout: SIGTERM, then SIGKILL to the child's whole group
"""
