"""Workflows: who waits for whom, and what the end of a node means to the others."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.limits import Limit
from fairlane.core.ops import (
    ALL_TENANTS,
    DropResults,
    GetWorkflow,
    PageNodes,
    PageWorkflows,
    PauseClaims,
    ReadResults,
    ResumeClaims,
    WorkflowReceipt,
    only,
)
from fairlane.core.workflows import GraphNode
from fairlane.testing.conformance.limits import set_limit, unhold
from fairlane.testing.conformance.samples import completed, died, retried
from fairlane.testing.conformance.scene import Scene, wanting
from fairlane.testing.conformance.workflows import Flow

pytestmark = pytest.mark.requirement("L18")

DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


def test_nodes_run_once_all_their_parents_have_completed(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    assert flow.statuses() == {"a": "pending", "b": "waiting", "c": "waiting", "d": "waiting"}
    assert (flow.status, flow.figures) == ("running", (3, 1, 0, 0, 0, 0))
    assert flow.claim() == ["a"]
    flow.complete("a")
    assert flow.claim() == ["b", "c"]
    flow.complete("b")
    assert flow.claim() == []
    flow.complete("c")
    assert flow.claim() == ["d"]
    assert flow.figures == (0, 1, 3, 0, 0, 0)
    flow.complete("d")
    assert (flow.status, flow.figures) == ("completed", (0, 0, 4, 0, 0, 0))


def test_the_turn_that_ends_a_parent_claims_its_children(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    assert flow.worker is not None
    turned = scene.turn(flow.worker, wanting(5), outcomes=(completed(flow.leases["a"]),))
    assert [lease.type for lease in turned.leases] == ["b"]
    assert (turned.leases[0].due_at, turned.leases[0].attempt) == (scene.now, 1)


def test_a_waiting_node_is_pending_and_in_no_queue(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    job = scene.see(flow.job("b"))
    assert (job.status, job.attempt) == ("pending", 0)
    assert len(scene.list_jobs(statuses=("pending",))) == 2
    assert (scene.queue().ready, scene.queue().held) == (1, 0)
    assert unhold(scene) == 0
    assert flow.statuses()["b"] == "waiting"


def test_parents_of_one_turn_count_together(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": ["a", "b"], "d": ["a"]}).put()
    assert flow.claim() == ["a", "b"]
    flow.complete("a", "b")
    assert flow.claim() == ["c", "d"]


def test_a_node_that_is_retried_lets_nobody_go(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    flow.settle(retried(flow.leases["a"], 5))
    assert flow.claim() == []
    scene.later(5)
    assert flow.claim() == ["a"]
    flow.complete("a")
    assert flow.claim() == ["b"]


def test_a_delayed_node_is_not_run_before_its_time(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}, job={"run_at": scene.at(60)}).put()
    assert flow.claim() == []
    scene.later(60)
    assert flow.claim() == ["a"]
    flow.complete("a")
    assert flow.claim() == ["b"]


def test_a_dead_node_stops_its_children_until_somebody_deals_with_it(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    flow.claim()
    flow.complete("a")
    flow.claim()
    flow.complete("b")
    flow.die("c")
    assert flow.claim() == []
    assert (flow.status, flow.figures) == ("blocked", (1, 0, 2, 1, 0, 0))
    assert flow.see().dead == (flow.letter("c"),)


def test_a_dead_node_that_is_reprocessed_lets_the_workflow_go_on(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    flow.claim()
    flow.complete("a")
    flow.claim()
    flow.complete("b")
    flow.die("c")
    act = scene.reprocess(flow.letter("c"))
    assert act.new_job is not None
    assert (flow.status, flow.figures, flow.job("c")) == ("running", (1, 1, 2, 0, 0, 0), act.new_job.id)
    assert flow.claim() == ["c"]
    flow.complete("c")
    assert flow.claim() == ["d"]
    flow.complete("d")
    assert flow.status == "completed"


def test_only_the_newest_job_of_a_node_is_tried_again(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    first = flow.letter("a")
    flow.die("a")
    scene.reprocess(first)
    flow.claim()
    second = flow.letter("a")
    flow.die("a")
    scene.reprocess(second)
    assert scene.reprocess(first).refused == "not_allowed"
    flow.claim()
    flow.complete("a")
    assert flow.claim() == ["b"]


@pytest.mark.parametrize(("act", "status"), [("resolve", "completed"), ("discard", "cancelled")])
def test_a_closed_dead_letter_decides_for_the_children(scene: Scene, act: str, status: str) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"], "c": ["b"]}).put()
    flow.claim()
    letter = flow.letter("a")
    flow.die("a")
    getattr(scene, act)(letter)
    assert flow.run() == (["b", "c"] if status == "completed" else [])
    flow.advance()
    assert flow.status == status
    assert scene.status(flow.job("c")) == status


def test_a_cancelled_node_cancels_what_waits_for_it(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"], "c": ["b"], "d": []}).put()
    scene.cancel(flow.job("a"))
    assert flow.statuses() == {"a": "cancelled", "b": "cancelled", "c": "cancelled", "d": "pending"}
    assert flow.run() == ["d"]
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 1, 0, 3, 0))


@pytest.mark.parametrize("end", ["die", "stop", "complete"])
def test_a_node_may_go_on_however_its_parents_end(scene: Scene, end: str) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": (["a", "b"], "continue")}).put()
    flow.claim()
    getattr(flow, end)("a")
    assert flow.claim() == []
    flow.complete("b")
    assert flow.claim() == ["c"]
    flow.complete("c")
    assert flow.status == {"die": "failed", "stop": "cancelled", "complete": "completed"}[end]


def test_a_dead_parent_that_is_tried_again_counts_once(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": (["a", "b"], "continue"), "d": ["a"]}).put()
    flow.claim()
    letter = flow.letter("a")
    flow.die("a")
    scene.reprocess(letter)
    flow.claim()
    flow.complete("a")
    assert flow.claim() == ["d"]
    flow.complete("b", "d")
    assert flow.claim() == ["c"]
    flow.complete("c")
    assert (flow.status, flow.run()) == ("completed", [])


def test_a_compensation_runs_only_if_a_parent_failed(scene: Scene) -> None:
    flow = Flow(scene, {"pay": [], "ship": ["pay"], "refund": (["pay"], "compensate"), "tell": ["refund"]}).put()
    flow.claim()
    flow.complete("pay")
    assert flow.run() == ["ship"]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 2, 0, 0, 2))
    assert scene.status(flow.job("refund")) == "cancelled"


def test_a_compensation_runs_when_a_parent_died(scene: Scene) -> None:
    flow = Flow(scene, {"pay": [], "ship": ["pay"], "refund": (["pay"], "compensate"), "tell": ["refund"]}).put()
    flow.claim()
    flow.die("pay")
    assert flow.run() == ["refund", "tell"]
    assert (flow.status, flow.figures) == ("blocked", (1, 0, 2, 1, 0, 0))


def test_a_node_that_is_buried_while_it_waits_waits_again_when_reprocessed(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"], "c": ["b"]}).put()
    letter = flow.letter("b")
    scene.bury(flow.job("b"))
    assert flow.figures == (1, 1, 0, 1, 0, 0)
    assert scene.reprocess(letter).refused is None
    assert (flow.figures, flow.statuses()["b"]) == ((2, 1, 0, 0, 0, 0), "waiting")
    assert flow.run() == ["a", "b", "c"]


def test_a_waiting_node_that_fails_by_hand_is_dead(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    act = scene.fail(flow.job("b"), retry_delay_s=5)
    assert act.job is not None
    assert act.job.status == "dead"
    assert flow.run() == ["a"]
    assert flow.status == "failed"


def test_a_reclaimed_node_that_dies_counts(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": (["a"], "continue")}).put()
    worker = scene.hire()
    scene.turn(worker, wanting(1, timeout_s=10))
    scene.later(14)
    scene.renew(worker)
    scene.later(10)
    scene.renew(worker)
    assert [one.became for one in scene.reclaim()] == ["dead"]
    assert flow.claim() == ["b"]


def test_a_workflow_of_the_same_key_is_a_duplicate(scene: Scene) -> None:
    first = Flow(scene, DIAMOND, key="onboard-7").put()
    second = Flow(scene, DIAMOND, key="onboard-7")
    receipt = second.enqueue()
    assert (receipt.disposition, receipt.id) == ("duplicate", first.id)
    assert scene.run(GetWorkflow(scope=ALL_TENANTS, id=second.id)) is None
    assert Flow(scene, DIAMOND, key="onboard-7", tenant="bolt").enqueue().disposition == "created"


def test_an_enqueue_that_is_repeated_writes_nothing(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    assert flow.enqueue().disposition == "replayed"
    assert flow.figures == (3, 1, 0, 0, 0, 0)
    other = Flow(scene, DIAMOND, name="other")
    other.id = flow.id
    other.op = other.enqueueing(name="other")
    assert other.enqueue().disposition == "conflict"


def test_a_workflow_whose_job_ids_are_taken_is_refused_whole(scene: Scene) -> None:
    flow, other = Flow(scene, {"a": [], "b": ["a"]}).put(), Flow(scene, {"a": [], "b": ["a"]})
    other.op = type(other.op)(
        workflow=other.op.workflow, jobs=(other.op.jobs[0], flow.op.jobs[1]), nodes=other.op.nodes, gates=other.op.gates
    )
    assert other.enqueue().disposition == "conflict"
    assert len(scene.list_jobs()) == 2


def test_a_workflow_beyond_the_capacity_is_refused_whole(scene: Scene) -> None:
    receipt = Flow(scene, DIAMOND, capacity=3).enqueue()
    assert (receipt.full, receipt.depth, receipt.disposition) == (True, 0, None)
    assert scene.list_jobs() == []


def test_a_workflow_beyond_its_tenants_limit_is_refused_whole(scene: Scene) -> None:
    limits = (Limit(kind="tenant", name="acme", waiting=3, when_full="reject"),)
    receipt = Flow(scene, DIAMOND, limits=limits).enqueue()
    assert receipt.refused is not None
    assert (receipt.refused.limit, receipt.disposition) == (3, None)
    assert scene.list_jobs() == []
    assert Flow(scene, {"a": [], "b": ["a"]}, limits=limits).enqueue().disposition == "created"


def test_a_limit_that_holds_keeps_back_the_first_nodes(scene: Scene) -> None:
    limits = (Limit(kind="tenant", name="acme", waiting=1, when_full="hold"),)
    flow = Flow(scene, {"a": [], "b": ["a"]}, limits=limits).put()
    assert (flow.claim(), scene.queue().held) == ([], 1)
    assert flow.figures == (1, 1, 0, 0, 0, 0)
    assert unhold(scene) == 1
    assert flow.run() == ["a", "b"]


def test_cancelling_a_workflow_ends_what_waits_and_stops_what_runs(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": ["a"], "d": ["c"]}).put()
    assert flow.claim(1) == ["a"]
    act = flow.cancel()
    assert act.workflow is not None
    assert (act.jobs, act.workflow.status, act.workflow.cancelled_at) == (4, "running", scene.now)
    assert flow.statuses() == {"a": "processing", "b": "cancelled", "c": "cancelled", "d": "cancelled"}
    flow.complete("a")
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 1, 0, 3, 0))
    assert flow.claim() == []
    [record] = scene.audit(target=f"workflow:{flow.id}")
    assert (record.action, record.by, record.tenant) == ("workflow_cancel", "ada", "acme")
    assert flow.cancel().refused is None
    assert len(scene.audit(target=f"workflow:{flow.id}")) == 1


def test_retrying_from_a_node_runs_it_and_all_behind_it_again(scene: Scene) -> None:
    flow = Flow(scene, {**DIAMOND, "e": []}).put()
    assert flow.run() == ["a", "e", "b", "c", "d"]
    act = flow.retry("b")
    assert act.refused is None
    assert (act.jobs, flow.figures) == (2, (1, 1, 3, 0, 0, 0))
    assert flow.run() == ["b", "d"]
    assert flow.status == "completed"
    assert scene.audit(target=f"workflow:{flow.id}")[0].action == "workflow_retry"


def test_a_cancelled_workflow_can_be_retried(scene: Scene) -> None:
    flow = Flow(scene, {**DIAMOND, "f": (["b", "c"], "continue"), "g": (["b"], "compensate")}).put()
    flow.claim()
    flow.complete("a")
    flow.cancel()
    assert flow.figures == (0, 0, 1, 0, 5, 0)
    assert flow.retry("b", "c").jobs == 5
    assert flow.run() == ["b", "c", "d", "f"]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 5, 0, 0, 1))


def test_a_dead_node_can_be_retried_with_its_workflow(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"], "c": (["a"], "continue")}).put()
    flow.claim()
    letter = flow.letter("a")
    flow.die("a")
    assert flow.run() == ["c"]
    assert flow.retry("a").jobs == 2
    assert scene.letter(letter).status == "retried"
    assert flow.run() == ["a", "b", "c"]
    assert flow.status == "completed"


def test_what_runs_cannot_be_retried(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    flow.claim()
    assert flow.retry("a").refused == "not_allowed"
    flow.complete("a")
    assert flow.retry("a").refused == "not_allowed"


SAGA = {"pay": [], "refund": (["pay"], "compensate"), "tell": ["refund"]}


@pytest.mark.parametrize("names", [("refund",), ("refund", "tell"), ("tell",)])
def test_what_was_not_needed_cannot_be_retried_alone(scene: Scene, names: tuple[str, ...]) -> None:
    flow = Flow(scene, SAGA).put()
    assert flow.run() == ["pay"]
    gates = flow.gates()
    assert flow.retry_only(*names).refused == "not_allowed"
    assert (flow.gates(), flow.figures, flow.status) == (gates, (0, 0, 1, 0, 0, 2), "completed")


def test_a_node_is_not_retried_behind_a_parent_that_stays_cancelled(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": ["a", "b"]}).put()
    scene.cancel(flow.job("a"))
    assert flow.run() == ["b"]
    gates = flow.gates()
    assert flow.retry("b").refused == "not_allowed"
    assert (flow.gates(), flow.figures) == (gates, (0, 0, 1, 0, 2, 0))
    assert flow.retry("a").jobs == 2
    assert flow.run() == ["a", "c"]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 3, 0, 0, 0))


def test_a_node_is_not_retried_alone_while_one_behind_it_runs(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"], "c": ["b"]}).put()
    flow.claim()
    flow.complete("a")
    assert flow.retry_only("a").refused == "not_allowed"
    assert (flow.figures, flow.run()) == ((1, 1, 1, 0, 0, 0), ["b", "c"])
    assert flow.retry_only("a").jobs == 1
    assert flow.figures == (0, 1, 2, 0, 0, 0)


def test_a_node_cancelled_before_its_gate_skips_stays_cancelled(scene: Scene) -> None:
    flow = Flow(scene, SAGA).put()
    scene.cancel(flow.job("refund"))
    assert flow.run() == ["pay"]
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 1, 0, 2, 0))
    assert flow.retry("pay").jobs == 3
    assert flow.figures == (2, 1, 0, 0, 0, 0)
    assert flow.run() == ["pay"]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 1, 0, 0, 2))


def test_a_discarded_letter_behind_a_skipped_gate_counts_as_cancelled(scene: Scene) -> None:
    flow = Flow(scene, SAGA).put()
    letter = flow.letter("refund")
    scene.bury(flow.job("refund"))
    assert flow.run() == ["pay"]
    scene.discard(letter)
    assert flow.figures == (0, 0, 1, 0, 2, 0)
    assert flow.retry("pay").jobs == 3
    assert flow.figures == (2, 1, 0, 0, 0, 0)


def test_what_was_skipped_stays_so_when_only_its_parent_runs_again(scene: Scene) -> None:
    flow = Flow(scene, SAGA).put()
    flow.run()
    assert flow.retry_only("pay").jobs == 1
    assert flow.figures == (0, 1, 0, 0, 0, 2)
    flow.claim()
    flow.die("pay")
    assert flow.figures == (0, 0, 0, 1, 0, 2)
    assert flow.retry("pay").jobs == 3
    assert flow.figures == (2, 1, 0, 0, 0, 0)


def test_a_running_node_adds_nodes_behind_itself(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "z": ["a"]}).put()
    flow.claim()
    lease = flow.leases["a"]
    words = {"b": ["a"], "c": ["b"]}
    assert flow.add(words, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no).added == 2
    assert flow.statuses() == {"a": "processing", "z": "waiting", "b": "waiting", "c": "waiting"}
    flow.complete("a")
    assert flow.run() == ["b", "z", "c"]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 4, 0, 0, 0))


def test_adding_the_same_nodes_again_adds_nothing(scene: Scene) -> None:
    flow = Flow(scene, {"a": []}).put()
    flow.claim()
    assert flow.add({"b": ["a"]}, known=["a"]).added == 1
    assert flow.add({"b": ["a"]}, known=["a"]).added == 0
    flow.complete("a")
    assert flow.run() == ["b"]


@pytest.mark.parametrize("end", ["complete", "die", "stop"])
def test_nodes_added_behind_an_ended_one_know_how_it_ended(scene: Scene, end: str) -> None:
    flow = Flow(scene, {"a": [], "z": []}).put()
    flow.claim()
    getattr(flow, end)("a")
    flow.add({"b": ["a"], "c": (["a"], "continue"), "d": (["a"], "compensate")})
    expected = {"complete": ["b", "c"], "die": ["c", "d"], "stop": ["c", "d"]}
    assert flow.claim() == expected[end]
    assert flow.figures[0] == (1 if end == "die" else 0)


def test_nothing_is_added_behind_a_node_that_retention_has_removed(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": []}).put()
    flow.run()
    scene.later(100)
    assert scene.retain(finished_before=scene.now, limit=1) == 1
    [left] = flow.statuses()
    [gone] = {"a", "b"} - {left}
    assert flow.add({"c": [gone]}, known=["a", "b"]).refused == "not_allowed"
    assert flow.figures == (0, 0, 2, 0, 0, 0)
    assert flow.add({"c": [left]}, known=["a", "b"]).added == 1
    assert flow.claim() == ["c"]


def test_a_job_that_lost_its_lease_adds_nothing(scene: Scene) -> None:
    flow = Flow(scene, {"a": []}).put()
    flow.claim()
    lease = flow.leases["a"]
    flow.complete("a")
    refused = flow.add({"b": ["a"]}, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no).refused
    assert (refused, len(flow.nodes())) == ("lease_lost", 1)


REJECTS = Limit(kind="tenant", name="acme", waiting=3, when_full="reject")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"capacity": 3}, WorkflowReceipt(full=True, depth=2)),
        ({"limits": (REJECTS,)}, "waiting"),
        ({"limits": (Limit(kind="tenant", name="acme", payload_bytes=1),)}, "payload_bytes"),
        ({"max_nodes": 3}, 4),
    ],
)
def test_nodes_beyond_what_an_enqueue_may_bring_are_not_added(
    scene: Scene, options: dict[str, Any], expected: Any
) -> None:
    flow = Flow(scene, {"a": [], "b": []}).put()
    before = flow.gates(), flow.figures
    refused = flow.add({"c": ["a"], "d": []}, **options)
    assert refused.refused == "not_allowed"
    if isinstance(expected, str):
        assert refused.receipt is not None
        assert refused.receipt.refused is not None
        assert refused.receipt.refused.cause == expected
    else:
        assert (refused.total or refused.receipt) == expected
    assert ((flow.gates(), flow.figures), len(scene.list_jobs())) == (before, 2)


def test_nodes_are_not_added_while_a_pause_refuses_new_jobs(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "z": []}).put()
    scene.run(PauseClaims(kind="type", name="b", refuse=True, by="ada"))
    refused = flow.add({"c": ["a"], "b": ["a"]}).receipt
    assert refused is not None
    assert refused.paused is not None
    assert (refused.paused.kind, refused.paused.name, len(flow.nodes())) == ("type", "b", 2)
    scene.run(ResumeClaims(kind="type", name="b", by="ada"))
    assert flow.add({"c": ["a"], "b": ["a"]}).added == 2
    assert flow.run() == ["a", "z", "b", "c"]


def test_nodes_that_are_there_run_into_no_limit(scene: Scene) -> None:
    flow = Flow(scene, {"a": []}).put()
    strict: dict[str, Any] = {"known": ["a"], "capacity": 2, "limits": (REJECTS,), "max_nodes": 3}
    assert flow.add({"b": ["a"]}, **strict).added == 1
    assert flow.add({"b": ["a"]}, **strict).added == 0
    scene.run(PauseClaims(kind="tenant", name="acme", refuse=True, by="ada"))
    assert flow.add({"b": ["a"]}, **strict).added == 0
    assert flow.run() == []
    scene.run(ResumeClaims(kind="tenant", name="acme", by="ada"))
    assert flow.run() == ["a", "b"]


def test_a_limit_that_holds_keeps_back_added_nodes_without_parents(scene: Scene) -> None:
    limits = (Limit(kind="tenant", name="acme", waiting=2, when_full="hold"),)
    flow = Flow(scene, {"a": []}).put()
    assert flow.add({"b": [], "c": ["b"]}, limits=limits).added == 2
    assert (flow.claim(), scene.queue().held) == (["a"], 1)
    flow.complete("a")
    assert (unhold(scene), flow.run()) == (1, ["b", "c"])


def test_a_limit_that_warns_lets_nodes_be_added(scene: Scene) -> None:
    flow = Flow(scene, {"a": []}).put()
    set_limit(scene, Limit(kind="tenant", name="acme", waiting=1, when_full="warn"))
    assert flow.add({"b": []}).added == 1
    set_limit(scene, Limit(kind="tenant", name="acme", waiting=1, when_full="reject"))
    assert flow.add({"c": []}).refused == "not_allowed"
    assert flow.run() == ["a", "b"]


def test_results_are_read_by_the_names_of_nodes(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    flow.complete("a", result='{"n":7}')
    assert flow.results("b", "a", "nobody") == {"b": ("pending", None), "a": ("completed", '{"n":7}')}


def test_another_tenant_sees_and_touches_nothing(scene: Scene) -> None:
    flow = Flow(scene, DIAMOND).put()
    assert scene.run(GetWorkflow(scope=only("bolt"), id=flow.id)) is None
    assert scene.run(PageWorkflows(scope=only("bolt"))).workflows == ()
    assert flow.cancel(only("bolt")).refused == "not_found"
    assert flow.see(only("acme")).workflow.tenant == "acme"


def test_workflows_are_listed_newest_first(scene: Scene) -> None:
    flows = [Flow(scene, {"a": []}, name=name).put() for name in ("x", "y", "x")]
    page = scene.run(PageWorkflows(scope=ALL_TENANTS, limit=2))
    assert [found.id for found in page.workflows] == [flows[2].id, flows[1].id]
    page = scene.run(PageWorkflows(scope=ALL_TENANTS, limit=2, before=page.next))
    assert ([found.id for found in page.workflows], page.next) == ([flows[0].id], None)
    assert [w.id for w in scene.run(PageWorkflows(scope=ALL_TENANTS, name="x")).workflows] == [flows[2].id, flows[0].id]


def test_many_children_go_on_in_bounded_steps(scene: Scene) -> None:
    words = {"a": [], **{f"n{n}": ["a"] for n in range(1005)}, "z": [f"n{n}" for n in range(1005)]}
    flow = Flow(scene, words).put()
    flow.claim()
    flow.complete("a")
    assert (flow.figures[0], flow.status) == (6, "running")
    assert flow.advance() == 5
    assert flow.advance() == 0
    assert flow.figures == (1, 1005, 1, 0, 0, 0)
    names = []
    while names := flow.claim(500):
        flow.complete(*names)
    assert (flow.status, flow.ran[-1]) == ("completed", "z")


def test_cancelling_descendants_goes_on_in_bounded_steps(scene: Scene) -> None:
    words = {"a": [], **{f"n{n}": ["a"] for n in range(1005)}, "z": ["n3"]}
    flow = Flow(scene, words).put()
    scene.cancel(flow.job("a"))
    while flow.advance(400):
        pass
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 0, 0, 1007, 0))


WIDE = {"a": [], "x": [], "y": ["x"], **{f"n{n}": ["a"] for n in range(1005)}, "z": ["n3", "n1004"]}
"""What ends `a` moves 1,000 nodes at once; five are left for the steps behind it."""


def test_a_workflow_is_cancelled_whole_while_a_gate_lets_nodes_go(scene: Scene) -> None:
    flow = Flow(scene, WIDE).put()
    flow.claim()
    flow.complete("a")
    names = flow.claim(3)
    assert (flow.cancel().jobs, flow.figures) == (1005 + 3, (0, 4, 1, 0, 1004, 0))
    assert flow.advance() == 0
    flow.stop("x", *names)
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 1, 0, 1008, 0))


def test_nodes_are_retried_while_a_gate_lets_others_go(scene: Scene) -> None:
    flow = Flow(scene, WIDE).put()
    flow.claim()
    flow.complete("a")
    flow.die("x")
    assert flow.retry("x").refused is None
    assert (flow.status, flow.figures) == ("running", (2, 1006, 1, 0, 0, 0))
    while flow.advance():
        pass
    while names := flow.claim(500):
        flow.complete(*names)
    assert (flow.status, flow.figures) == ("completed", (0, 0, 1009, 0, 0, 0))


def test_a_retry_of_others_does_not_keep_a_gate_from_ending_its_nodes(scene: Scene) -> None:
    flow = Flow(scene, WIDE).put()
    scene.cancel(flow.job("a"))
    flow.claim()
    flow.die("x")
    assert flow.figures == (7, 0, 0, 1, 1001, 0)
    assert flow.retry_only("n2").refused == "not_allowed"
    assert flow.retry("x").refused is None
    assert flow.figures == (7, 1, 0, 0, 1001, 0)
    while flow.advance():
        pass
    assert flow.run() == ["x", "y"]
    assert (flow.status, flow.figures) == ("cancelled", (0, 0, 2, 0, 1007, 0))


def test_a_gate_that_is_ending_its_nodes_waits_again_when_its_parent_is_retried(scene: Scene) -> None:
    flow = Flow(scene, WIDE).put()
    scene.cancel(flow.job("a"))
    assert flow.retry("a").jobs == 1 + 1000
    assert (flow.advance(), flow.figures) == (0, (1007, 2, 0, 0, 0, 0))
    while names := flow.claim(500):
        flow.complete(*names)
        flow.advance()
    assert (flow.status, flow.figures) == ("completed", (0, 0, 1009, 0, 0, 0))


def test_retention_keeps_what_an_unfinished_workflow_needs(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    flow.complete("a")
    scene.later(3600)
    assert scene.retain(finished_before=scene.now) == 0
    flow.run()
    scene.later(3600)
    assert scene.retain(finished_before=scene.now) == 2
    assert scene.run(GetWorkflow(scope=ALL_TENANTS, id=flow.id)) is None
    assert scene.run(PageWorkflows(scope=ALL_TENANTS)).workflows == ()


def test_a_workflow_of_which_some_nodes_were_removed_is_paged_over_the_others(scene: Scene) -> None:
    flow = Flow(scene, {f"n{n:02}": [] for n in range(12)}).put()
    flow.claim()
    for numbers in ((5, 1, 2, 9), (0, 3, 4, 6), (7, 8, 10, 11)):
        flow.complete(*(f"n{n:02}" for n in numbers))
        scene.later(100)
    assert scene.retain(finished_before=scene.at(-250)) == 4
    assert [node.n for node in flow.nodes()] == [0, 3, 4, 6, 7, 8, 10, 11]
    pages, after = [], -1
    while after is not None:
        page = scene.run(PageNodes(scope=ALL_TENANTS, workflow=flow.id, after=after, limit=3))
        pages.append(([node.n for node in page.nodes], page.next))
        after = page.next
    assert pages == [([0, 3, 4], 4), ([6, 7, 8], 8), ([10, 11], None)]
    assert (flow.status, flow.figures) == ("completed", (0, 0, 12, 0, 0, 0))
    assert scene.retain(finished_before=scene.at(-150)) == 4
    assert [node.name for node in flow.nodes()] == ["n07", "n08", "n10", "n11"]


def test_results_stay_while_other_nodes_may_need_them(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    flow.complete("a", result="7")
    ended_at = scene.now
    scene.later(3600)
    answer = scene.run(DropResults(type="a", finished_before=scene.now))
    assert (answer.dropped, answer.left_at) == (0, ended_at)
    assert scene.run(DropResults(type="b", finished_before=scene.now)).left_at is None
    assert flow.results("a") == {"a": ("completed", "7")}
    flow.run()
    scene.later(3600)
    answer = scene.run(DropResults(type="a", finished_before=scene.now, at=answer.left_at))
    assert (answer.dropped, answer.left_at) == (1, None)
    assert flow.results("a") == {"a": ("completed", None)}
    [found] = scene.run(ReadResults(scope=ALL_TENANTS, workflow=flow.id, names=("a",))).results
    assert (found.type, found.finished_at) == ("a", ended_at)


def test_a_result_that_is_null_is_a_result(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": ["a"]}).put()
    flow.claim()
    flow.complete("a", result="null")
    flow.complete("b")
    assert flow.results("a", "b") == {"a": ("completed", "null"), "b": ("completed", None)}
    flow.run()
    scene.later(3600)
    assert scene.run(DropResults(type="a", finished_before=scene.now)).dropped == 1
    assert flow.results("a") == {"a": ("completed", None)}


class TestBatches:
    """A batch is a workflow whose last nodes wait for all the others."""

    def batch(self, scene: Scene, members: int = 3) -> Flow:
        graph = [GraphNode(f"m{n}") for n in range(members)]
        for name, on_failure in (("good", "stop"), ("bad", "compensate"), ("end", "continue")):
            graph.append(GraphNode(name, (), on_failure, everyone=True))  # type: ignore[arg-type]
        return Flow(scene, graph).put()

    def test_callbacks_run_once_when_all_have_completed(self, scene: Scene) -> None:
        flow = self.batch(scene)
        assert flow.claim() == ["m0", "m1", "m2"]
        flow.complete("m0")
        assert flow.claim() == []
        flow.complete("m1", "m2")
        assert flow.claim() == ["end", "good"]
        flow.complete("end", "good")
        assert (flow.status, flow.figures) == ("completed", (0, 0, 5, 0, 0, 1))

    def test_callbacks_of_a_batch_with_a_failure(self, scene: Scene) -> None:
        flow = self.batch(scene)
        flow.claim()
        letter = flow.letter("m1")
        flow.complete("m0", "m2")
        flow.die("m1")
        assert flow.run() == ["bad", "end"]
        assert flow.status == "blocked"
        scene.reprocess(letter)
        assert flow.run() == ["m1", "good"]
        assert flow.status == "completed"

    def test_jobs_added_while_it_runs_belong_to_it(self, scene: Scene) -> None:
        flow = self.batch(scene)
        flow.claim()
        assert flow.add({"m3": [], "m4": []}).added == 2
        flow.complete("m0", "m1", "m2")
        assert flow.claim() == ["m3", "m4"]
        flow.complete("m3")
        assert flow.claim() == []
        flow.complete("m4")
        assert flow.claim() == ["end", "good"]
        assert flow.add({"m5": []}).refused == "ended"

    def test_a_large_batch_counts_in_many_places(self, scene: Scene) -> None:
        flow = self.batch(scene, 150)
        names = flow.claim(150)
        flow.die(names[0])
        flow.stop(names[1])
        for name in names[2:80]:
            flow.complete(name)
        flow.complete(*names[80:])
        assert flow.claim() == ["bad", "end"]
        flow.complete("bad", "end")
        assert flow.figures == (0, 0, 150, 1, 2, 0)


def test_outcomes_of_many_kinds_in_one_turn(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": [], "c": (["a", "b"], "continue")}).put()
    flow.claim()
    flow.settle(completed(flow.leases["a"]), died(flow.leases["b"]))
    assert flow.claim() == ["c"]
