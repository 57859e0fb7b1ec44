"""Durable business processes in SQL: a queue contract, supervisors, and a worker for e-mail, SMS and file deletion.

Three layers, each with one seam to the next:

contract.py, functions/, migrations/   SQL on PostgreSQL. A task is a job of the queue "supervisors"; supervisors and
    handlers are the user's SQL functions `(jsonb) returns jsonb`, called by `internal.run_function` as
    `worker_service_user`.
channels.py   Runs tasks: for every task type a task of Fairlane with that name. It knows the names of handlers and the
    envelope (envelope.py), and nothing of what is in a payload.
providers/    Delivers: `async def deliver(self, payload: dict[str, Any]) -> dict[str, Any]` takes the payload that a
    before handler made and returns what the success handler gets as `worker_payload`. Whatever it raises is a failed
    delivery, and its text the `error` that the error handler gets.

kit.py generates processes in SQL; business_process.py is the same pattern in Python, on every store.
"""
