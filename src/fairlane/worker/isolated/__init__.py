"""Runs isolated attempts in processes of their own, which can be killed, capped in memory, and crash alone.

worker process                       child process (one attempt at a time, reused)
  Children.run(lease) ──frame──▶  decode, run as the current job, decide
                      ◀──frames─  progress and log lines, then the outcome
  past its timeout: SIGTERM, then SIGKILL to the child's whole group
"""
