"""Workflows in the oracle: every gate has a list of those it waits for, and is looked at after each operation."""

from __future__ import annotations

from typing import Any

from fairlane.core import job as values, ops, workflows
from tests.model_acts import CARRIED_OVER
from tests.model_facts import Record
from tests.model_pages import job_of

DONE = {"opening": "open", "closing": "closed", "skipping": "skipped"}


class Workflows:
    jobs: list[Record]
    flows: list[dict[str, Any]]

    def enqueueworkflow(self, op, now):
        spec = op.workflow
        for flow in self.flows:
            if flow["spec"].id == spec.id:
                return ops.WorkflowReceipt(disposition="replayed" if flow["spec"] == spec else "conflict", id=spec.id)
        for flow in self.flows:
            known = flow["spec"]
            if spec.idempotency_key and (known.tenant, known.idempotency_key) == (spec.tenant, spec.idempotency_key):
                return ops.WorkflowReceipt(disposition="duplicate", id=known.id)
        if {job.id for job in op.jobs} & {r.spec.id for r in self.jobs}:
            return ops.WorkflowReceipt(disposition="conflict", id=spec.id)
        refusal, depth, full = self._room(op.jobs, op)
        if refusal:
            return refusal
        flow = {"spec": spec, "seq": len(self.flows) + 1, "at": now, "cancelled_at": None, "nodes": [], "gates": []}
        flow["removed"] = []  # how nodes had ended that are no longer kept
        self.flows.append(flow)
        self._add(flow, op.jobs, op.nodes, op.gates, full, now)
        return ops.WorkflowReceipt(disposition="created", id=spec.id, depth=depth)

    def _room(self, jobs, op):
        """The refusal of new nodes, how many jobs wait, and the queues whose nodes are kept back."""
        depth = None
        if op.capacity is not None:
            depth = min(sum(r.place in ("ready", "scheduled", "held", "waiting") for r in self.jobs), op.capacity)
            if depth + len(jobs) > op.capacity:
                return ops.WorkflowReceipt(full=True, depth=depth), depth, ()
        if refusing := self._refusing_pause(jobs):
            return ops.WorkflowReceipt(paused=refusing, depth=depth), depth, ()
        refused, _, held = self._limit_hits(ops.Enqueue(jobs=jobs, limits=op.limits), jobs)
        if refused:
            return ops.WorkflowReceipt(refused=refused, depth=depth), depth, ()
        return None, depth, {job.queue for job in jobs if job.id in held}

    def _add(self, flow, jobs, nodes, gates, full, now):
        first = len(flow["gates"])
        for gate in gates:
            behind = None if gate.counts_for is None else first + gate.counts_for
            flow["gates"].append(
                {"opens": gate.opens, "waits": gate.waits, "failed": 0, "counts_for": behind, "state": "waiting"}
                | {"everyone": gate.everyone}
            )
        for job, node in zip(jobs, nodes, strict=True):
            self._put(job, now, held=job.queue in full)
            if node.gate is not None:
                self.jobs[-1].place, self.jobs[-1].at_key = "waiting", False
            flow["nodes"].append(
                {"name": node.name, "job": self.jobs[-1], "again": False, "seen": None, "skipped": False}
                | {"gate": None if node.gate is None else first + node.gate}
                | {"counts": [first + gate for gate in node.counts_for]}
                | {"n": len(flow["nodes"]) + len(flow["removed"])}
            )

    def addnodes(self, op, now):
        flow = self._flow(op.workflow, op.scope)
        if flow is None:
            return ops.NodesAdded(refused="not_found")
        held = [r.lease.worker for r in self.jobs if r.seq == op.seq and r.lease]
        if op.seq is not None and not (held and self._leased(op, op.worker or held[0])):
            return ops.NodesAdded(refused="lease_lost")
        names = [node["name"] for node in flow["nodes"]]
        new = [place for place, node in enumerate(op.nodes) if node.name not in names]
        if not new:
            return ops.NodesAdded()
        everyone = [n for n, gate in enumerate(flow["gates"]) if gate["everyone"]]
        if any(flow["gates"][n]["state"] != "waiting" for n in everyone):
            return ops.NodesAdded(refused="ended")
        if flow["cancelled_at"] or any(name not in names for name, _ in op.behind):
            return ops.NodesAdded(refused="not_allowed")
        if len(names) + len(new) > op.max_nodes:
            return ops.NodesAdded(refused="not_allowed", total=len(names) + len(new))
        jobs = tuple(op.jobs[i] for i in new)
        refusal, _, full = self._room(jobs, op)
        if refusal:
            return ops.NodesAdded(refused="not_allowed", receipt=refusal)
        first = len(flow["gates"])
        self._add(flow, jobs, [op.nodes[i] for i in new], op.gates, full, now)
        for node in flow["nodes"][-len(new) :]:
            node["counts"] += everyone
        for n in everyone:
            flow["gates"][n]["waits"] += len(new)
        counts: dict[int, list[tuple[str, bool]]] = {}
        for name, gate in op.behind:
            node = flow["nodes"][names.index(name)]
            node["counts"].append(first + gate)
            ended = self._ended(flow, node)
            if ended or node["again"]:
                counts.setdefault(first + gate, []).append((ended or "dead", False))
        self._count(flow, counts)
        self._move(now, len(new))
        return ops.NodesAdded(added=len(new))

    def _flow(self, id, scope):
        return next((f for f in self.flows if f["spec"].id == id and scope.admits(f["spec"].tenant)), None)

    def _ended(self, flow, node):
        """How a node has ended, with what people did about it."""
        record = node["job"]
        if not record.is_finished:
            return None
        letter = record.letter["status"] if record.letter else None
        if record.place == "completed" or letter == "resolved":
            return "completed"
        if record.place == "dead" and letter != "discarded":
            return "dead"
        return "skipped" if node["skipped"] else "cancelled"

    def count_nodes(self, now):
        """After each operation: ends nobody has counted yet, and what they let go."""
        left, is_first = workflows.RELEASE_LIMIT, True
        while True:
            counts_of = [(flow, self._new_ends(flow)) for flow in self.flows]
            if not any(counts for _, counts in counts_of) and not is_first:
                return
            turned = [self._count(flow, counts) for flow, counts in counts_of]
            if not any(turned):
                if not any(counts for _, counts in counts_of):
                    return
                is_first = False
                continue
            left -= self._move(now, left, [gate for gates in turned for gate in gates])
            is_first = False

    def _new_ends(self, flow):
        counts: dict[int, list[tuple[str, bool]]] = {}
        for node in flow["nodes"]:
            ended = self._ended(flow, node)
            if ended and (node["job"], ended) != node["seen"]:
                # A closed letter of one that was counted as dead: its first end stays counted where ends count.
                again = node["again"] or (node["seen"] is not None and node["seen"][0] is node["job"])
                node["seen"] = (node["job"], ended)
                for gate in node["counts"]:
                    counts.setdefault(gate, []).append((ended, again))
        return counts

    def _count(self, flow, counts):
        turned = []
        while counts:
            following: dict[int, list[tuple[str, bool]]] = {}
            for n in sorted(counts):
                gate, ends = flow["gates"][n], counts[n]
                if gate["state"] != "waiting":
                    continue
                firsts = [status for status, again in ends if not again]
                gate["failed"] += sum(status in ("dead", "cancelled", "part failed") for status in firsts)
                statuses = ["completed" if status == "part failed" else status for status, _ in ends]
                by_completion = gate["opens"] == "completed"
                gate["waits"] -= statuses.count("completed") if by_completion else len(firsts)
                if by_completion and "cancelled" in statuses:
                    gate["state"] = "closing"
                elif by_completion and "skipped" in statuses:
                    gate["state"] = "skipping"
                elif gate["waits"] <= 0:
                    gate["state"] = "skipping" if gate["opens"] == "failed" and not gate["failed"] else "opening"
                if gate["state"] == "waiting":
                    continue
                if gate["counts_for"] is None:
                    turned.append(gate)
                    continue
                passed = {"opening": "part failed" if gate["failed"] else "completed", "closing": "cancelled"}
                following.setdefault(gate["counts_for"], []).append((passed.get(gate["state"], "skipped"), False))
                gate["state"] = DONE[gate["state"]]
            counts = following
        return turned

    def _move(self, now, limit, only=None):
        moved = 0
        for flow in self.flows:
            for n, gate in enumerate(flow["gates"]):
                if gate["state"] not in DONE or (only is not None and not any(gate is one for one in only)):
                    continue
                waiting = [node for node in flow["nodes"] if node["gate"] == n and node["job"].place == "waiting"]
                for node in waiting[: max(limit - moved, 0)]:
                    record = node["job"]
                    if gate["state"] == "opening":
                        record.place, record.due = "scheduled", record.due if not record.is_due(now) else now
                        if record.due <= now:
                            record.make_ready()
                        record.since, record.attempt = None, int(bool(record.steps))
                    else:
                        record.finish("cancelled", now)
                        node["skipped"] = gate["state"] == "skipping"
                if len(waiting) <= max(limit - moved, 0):
                    gate["state"] = DONE[gate["state"]]
                moved += min(len(waiting), max(limit - moved, 0))
        return moved

    def advance(self, op, now):
        return ops.Advanced(count=self._move(now, max(op.limit, 0)))

    def _read(self, flow):
        places = [(node["job"].place, self._ended(flow, node)) for node in flow["nodes"]]
        ends = [ended for _, ended in places] + flow["removed"]
        tally = workflows.Tally(
            total=len(ends),
            waiting=sum(place == "waiting" for place, _ in places),
            **{name: ends.count(name) for name in ("completed", "dead", "cancelled", "skipped")},
        )
        spec = flow["spec"]
        return workflows.Workflow(
            id=spec.id,
            seq=flow["seq"],
            name=spec.name,
            tenant=spec.tenant,
            status=workflows.status_of(tally, moving=any(gate["state"] in DONE for gate in flow["gates"])),
            tally=tally,
            idempotency_key=spec.idempotency_key,
            correlation_id=spec.correlation_id or str(spec.id),
            created_by=spec.created_by,
            enqueued_at=flow["at"],
            cancelled_at=flow["cancelled_at"],
        )

    def getworkflow(self, op, now):
        flow = self._flow(op.id, op.scope)
        if flow is None:
            return None
        dead = [node["job"].seq for node in flow["nodes"] if self._ended(flow, node) == "dead"]
        pending = [r.seq for r in self.jobs if r.seq in dead and r.letter["status"] == "pending_review"]
        return ops.WorkflowDetail(workflow=self._read(flow), dead=tuple(seq for seq in dead if seq in pending)[:100])

    def pageworkflows(self, op, now):
        found = [
            self._read(flow)
            for flow in reversed(self.flows)
            if op.scope.admits(flow["spec"].tenant)
            and op.name in (None, flow["spec"].name)
            and (op.before is None or flow["seq"] < op.before)
        ]
        limit = max(1, min(op.limit, ops.MAX_PAGE))
        return ops.WorkflowPage(
            workflows=tuple(found[:limit]), next=found[limit - 1].seq if len(found) > limit else None
        )

    def pagenodes(self, op, now):
        flow = self._flow(op.workflow, op.scope)
        nodes = [] if flow is None else [(node["n"], node) for node in flow["nodes"] if node["n"] > op.after]
        limit = max(1, min(op.limit, ops.MAX_NODE_PAGE))
        found = []
        for n, node in nodes[:limit]:
            job = job_of(node["job"])
            found.append(
                workflows.Node(
                    n=n,
                    name=node["name"],
                    gate=node["gate"],
                    counts_for=tuple(node["counts"]),
                    waiting=node["job"].place == "waiting",
                    job_id=job.id,
                    job_seq=job.seq,
                    **{name: getattr(job, name) for name in ("type", "status", "attempts", "enqueued_at")},
                    **{name: getattr(job, name) for name in ("started_at", "finished_at", "last_error")},
                )
            )
        return ops.NodePage(nodes=tuple(found), next=found[-1].n if len(nodes) > limit else None)

    def listgates(self, op, now):
        flow = self._flow(op.workflow, op.scope)
        gates = [] if flow is None else [workflows.Gate(n=n, **gate) for n, gate in enumerate(flow["gates"])]
        return ops.Gates(gates=tuple(gates))

    def readresults(self, op, now):
        flow = self._flow(op.workflow, op.scope)
        by_name = {} if flow is None else {node["name"]: job_of(node["job"]) for node in flow["nodes"]}
        return ops.NodeResults(
            results=tuple(
                ops.NodeResult(
                    name=name,
                    job_id=job.id,
                    status=job.status,
                    result=job.result,
                    type=job.type,
                    finished_at=job.finished_at,
                )
                for name in op.names
                if (job := by_name.get(name))
            )
        )

    def cancelworkflow(self, op, now):
        flow = self._flow(op.id, op.scope)
        if flow is None:
            return ops.WorkflowAct(refused="not_found")
        before, touched = self._read(flow).status, 0
        for node in flow["nodes"]:
            record = node["job"]
            if record.lease and not record.lease.cancel:
                record.lease.cancel, touched = True, touched + 1
            elif not record.is_finished and not record.lease:
                record.last, touched = None, touched + 1
                record.finish("cancelled", now)
                node["seen"] = (record, self._ended(flow, node))
        for gate in flow["gates"]:
            if gate["state"] in ("waiting", *DONE):
                gate["state"] = DONE.get(gate["state"], "closed")
        if flow["cancelled_at"] is None:
            flow["cancelled_at"] = now
            status = {"status": before}, {"status": self._read(flow).status}
            self._note(op, "workflow_cancel", flow["spec"].tenant, f"workflow:{op.id}", *status, now)
        return ops.WorkflowAct(workflow=self._read(flow), jobs=touched)

    def _recount(self, flow, again):
        gates = [workflows.Gate(n=n, **gate) for n, gate in enumerate(flow["gates"])]
        counted = []
        for node in flow["nodes"]:
            is_new = any(node is one for one in again)
            ended = None if is_new else self._ended(flow, node)
            counted.append(workflows.CountedNode(tuple(node["counts"]), ended, node["again"] and not is_new))
        return workflows.recount(gates, counted)

    def retryworkflow(self, op, now):
        flow = self._flow(op.id, op.scope)
        if flow is None:
            return ops.WorkflowAct(refused="not_found")
        before, by_name = self._read(flow), {node["name"]: node for node in flow["nodes"]}
        asked = [(by_name.get(name), job_id) for name, job_id in op.again]
        if not asked or any(
            node is None or not (node["job"].is_finished or node["job"].place == "waiting") for node, _ in asked
        ):
            return ops.WorkflowAct(refused="not_allowed", workflow=before)
        again = [(node, job_id) for node, job_id in asked if node["job"].is_finished]
        anew = self._recount(flow, [node for node, _ in again])
        live = [node for node in flow["nodes"] if not node["job"].is_finished and node["job"].place != "waiting"]
        if any(workflows.forbids(anew, node["gate"], is_live=False) for node, _ in again) or any(
            workflows.forbids(anew, node["gate"], is_live=True) for node in live
        ):
            return ops.WorkflowAct(refused="not_allowed", workflow=before)
        for node, job_id in again:
            old = node["job"]
            if old.letter and old.letter["status"] == "pending_review":
                self._close(op, old, "retried", now)
                old.letter |= {"reprocess_count": old.letter["reprocess_count"] + 1, "reprocessed_as": job_id}
            carried = {name: getattr(old.spec, name) for name in CARRIED_OVER}
            spec = values.JobSpec(
                id=job_id,
                payload=old.spec.payload,
                correlation_id=old.spec.correlation_id,
                created_by=op.by,
                **carried,
            )
            self.last_seq += 1
            self.jobs.append(Record(spec, self.last_seq, "new", enqueued_at=now, first_due=now, due=now))
            self.jobs[-1].steps = [] if old.place == "completed" else list(old.steps)
            self.jobs[-1].order = old.order
            node["job"], node["again"], node["seen"] = self.jobs[-1], False, None
            node["skipped"] = False
        for gate in anew:
            flow["gates"][gate.n] |= {"waits": gate.waits, "failed": gate.failed, "state": gate.state}
        for node in flow["nodes"]:
            is_free = node["gate"] is None or flow["gates"][node["gate"]]["state"] == "open"
            if node["job"].place == "new":
                node["job"].place = "waiting"
            if node["job"].place == "waiting" and is_free:
                node["job"].make_ready()
                node["job"].attempt = int(bool(node["job"].steps))
        flow["cancelled_at"] = None
        after = self._read(flow)
        facts = {"status": before.status}, {"status": after.status, "jobs": len(again)}
        self._note(op, "workflow_retry", flow["spec"].tenant, f"workflow:{op.id}", *facts, now)
        return ops.WorkflowAct(workflow=after, jobs=len(again))

    # What acts on jobs and dead letters ask.

    def node_of(self, record):
        """The node that a job stands for now, with its workflow."""
        for flow in self.flows:
            for node in flow["nodes"]:
                if node["job"] is record:
                    return flow, node
        return None

    def may_be_tried_again(self, record):
        found = self.node_of(record)
        if found is None:
            return workflows.WORKFLOW_HEADER not in record.spec.headers
        flow, node = found
        return node["gate"] is None or flow["gates"][node["gate"]]["state"] in ("waiting", "opening", "open")

    def replace_job(self, dead, new):
        found = self.node_of(dead)
        if found is not None:
            flow, node = found
            node["job"], node["again"] = new, True
            if node["gate"] is not None and flow["gates"][node["gate"]]["state"] != "open":
                new.place, new.attempt = "waiting", 0

    def is_wanted(self, record):
        found = self.node_of(record)
        if found is None:
            return False
        tally = self._read(found[0]).tally
        return tally.total > tally.completed + tally.cancelled + tally.skipped

    def forget_nodes(self):
        for flow in self.flows:
            gone = [node for node in flow["nodes"] if not any(node["job"] is r for r in self.jobs)]
            flow["removed"] += [self._ended(flow, node) for node in gone]
            flow["nodes"] = [node for node in flow["nodes"] if not any(node is one for one in gone)]
        self.flows = [flow for flow in self.flows if flow["nodes"]]
