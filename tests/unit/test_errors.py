"""Codes of errors: programs compare them, so that renaming a class must not change one."""

from __future__ import annotations

from fairlane import errors

CODES = """
address_refused bad_input blocks_event_loop breaker_not_found breaker_open claim_lost config credential_not_found dead_letter_not_found duplicate_job
enqueue_rate_reached error id_conflict invalid_arguments invalid_option invalid_payload invalid_state invalid_workflow job_failed
job_not_found missing_extra needs_newer_code no_current_job no_transaction not_admitted not_found old_workers_alive permission_denied
queue_full queue_paused result_timeout role_lacks_rights role_missing schedule_not_found schema_conflict schema_out_of_date spool_full sqlite_library_mismatch
still_running store store_closed store_refused store_unavailable tenant_limit_reached unknown_priority unknown_task unreadable_payload
unsupported_connection workflow_not_found
"""


def test_codes_stay_what_programs_know() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.FairlaneError)]
    assert sorted(one.code for one in classes) == CODES.split()
