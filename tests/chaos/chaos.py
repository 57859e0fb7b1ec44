"""A chaos run: hosts that work, a feeder that keeps them busy, faults at random from one seed, and the verdict."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import apsw
import psutil

from fairlane.core.job import FINAL, STATUSES, Job
from fairlane.errors import FairlaneError
from tests.chaos.application import TENANT_LIMIT, app
from tests.chaos.feeder import MAY_DIE, Feeder
from tests.chaos.hosts import Host, halt, send, writer_of
from tests.chaos.recorder import LIMITED_TYPE, PLACES, Records
from tests.chaos.verdict import Halt, State, Stretch, longest_stops, meetings, out_of_turn
from tests.faults.places import Place, ValkeyPlace
from tests.servers.proxy import Proxy
from tests.worker.foreman.crew import Crew

LEASE_S = 6.0
STOP_S = LEASE_S + 2.0
"""The longest time without progress while a worker is there. With none left, a start of one is allowed on top."""
OUTAGES_S = (1.0, 1.0, 1.0, 3 * LEASE_S)
APP, SCHEDULED = "tests.chaos.application:app", "chaos.tick"


@dataclass
class Figures:
    seconds: float
    seed: int
    jobs: int = 0
    attempts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    start_s: float = 0.0
    stops_s: dict[State, float] = field(default_factory=dict)
    away_s: float = 0.0
    throughput: float = 0.0
    most_at_once: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def most_s(self, state: State) -> float:
        return STOP_S + (self.start_s if state == "starting" else 0.0)

    def __str__(self) -> str:
        limits = ", ".join(f"{most} of {PLACES[limit]} by {limit}" for limit, most in self.most_at_once.items())
        faults = ", ".join(f"{name} {times}" for name, times in sorted(self.faults.items()))
        return (
            f"seed {self.seed}: {self.jobs} jobs, {self.attempts} attempts in {self.seconds:.0f} s, "
            f"{self.throughput:.0f} jobs/s; the first start took {self.start_s:.1f} s\n"
            f"  longest stop {self.stops_s.get('working', 0.0):.1f} s of {STOP_S:g} s; with all workers gone "
            f"{self.stops_s.get('starting', 0.0):.1f} s of {self.most_s('starting'):.1f} s; "
            f"nothing could run for {self.away_s:.1f} s\n  at once: {limits}\n  faults: {faults}"
        )


class Chaos:
    """Runs hosts on a store and lets everything go wrong; `run` returns the figures and what was wrong.

    The server of a place is the run's own: it is killed. On SQLite the store is a file.
    """

    def __init__(self, store: Place | ValkeyPlace | Path, directory: Path, seed: int, processes: int = 2) -> None:
        self._chance, self._seed, self._processes = random.Random(seed), seed, str(processes)
        self._place = None if isinstance(store, Path) else store
        self._file = store if isinstance(store, Path) else None
        self._open = ExitStack()
        self._feeding_line = self._line()
        # The feeder waits no longer for an answer that was lost: meanwhile the workers would have nothing to do.
        self._crew = Crew(self._url(self._feeding_line), directory, tasks_of=app, statement_timeout_s=2.0)
        self._open.callback(self._crew.close)
        self._records = Records(directory / "diary")
        self._hosts: list[Host] = []
        self._is_store_up = True
        self._endings: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._worked: set[int] = set()
        self._stepped_s = self._struck_s = 0.0
        self._halts: list[Halt] = []
        self._stretches: list[Stretch] = []
        self._was_store_away_s = self._started_s = 0.0
        self._runs_by_hand = 0
        self.faults: Counter[str] = Counter()
        self._timeline = directory / "timeline"

    @property
    def timeline(self) -> str:
        """Every fault and every change of state, with its time."""
        return self._timeline.read_text()

    def close(self) -> None:
        self._open.close()

    def run(self, seconds: float) -> Figures:
        figures = Figures(seconds, self._seed, faults=self.faults)
        self._crew.app.limits.set(**TENANT_LIMIT)
        self._started_s = monotonic()
        self._hosts = [self._host() for _ in range(2)]
        feeder = Feeder(self._crew.app, self._records, random.Random(self._seed + 1))
        with feeder:
            self._crew.eventually(self._is_each_at_work, 60)
            begin_s = monotonic()
            figures.start_s = begin_s - self._started_s
            self._rage(begin_s + seconds)
            self._calm()
            self._judge_progress(figures)
        self._drain(figures, feeder)
        ended = {record.job for record in self._records.all if record.event == "ended"}
        figures.jobs, figures.throughput = len(ended), len(ended) / (monotonic() - begin_s)
        figures.most_at_once = {
            limit: max(record.place for record in self._records.all if record.limit == limit) for limit in PLACES
        }
        figures.attempts = sum(record.event == "began" for record in self._records.all)
        figures.wrong += meetings(self._records.all, self._halts, LEASE_S)
        jobs = self._all_jobs()
        figures.wrong += self._losses(jobs, feeder, ended) + self._firings(jobs, seconds)
        figures.wrong += out_of_turn(self._records.all, {key: job.seq for key, job in jobs.items()})
        figures.wrong += [f"a foreman ended with {code}" for host in self._hosts if (code := host.foreman.stop())]
        return figures

    # Faults

    def _rage(self, until_s: float) -> None:
        """One fault after the other, each when something has run since the last that could stop everything."""
        next_s = monotonic()
        while (now_s := monotonic()) < until_s:
            self._look()
            while self._endings and self._endings[0][0] <= now_s:
                heappop(self._endings)[2]()
            self._revive()
            if now_s >= next_s and (self._stepped_s > self._struck_s or now_s - self._struck_s > STOP_S):
                self._strike()
                next_s = monotonic() + self._chance.expovariate(1.2)
            self._note_state()
            sleep(0.02)

    def _strike(self) -> None:
        faults: list[tuple[int, Callable[[], str]]] = [
            (6, self._kill_worker),
            (1, self._kill_all_workers),
            (2, self._kill_foreman),
            (2, self._halt_worker),
            (1, self._halt_foreman),
            (2, self._halt_host),
            (1, self._hang_up),
        ]
        if self._is_store_up:
            faults += [(3, self._pause), (1, self._change_limit), (1, self._run_schedule)]
        if self._place is not None:
            faults += [(3, self._cut), (1, self._cut_off), (1, self._cut_feeder)]
        if self._place is not None and self._is_store_up:
            faults += [
                (1, self._kill_server),
                (1, self._restart_server),
                (1, self._halt_server),
                (2, self._end_sessions),
            ]
        if self._file is not None and self._is_store_up:
            faults += [(2, self._hold_file)]
        [strike] = self._chance.choices([one for _, one in faults], [weight for weight, _ in faults])
        try:
            what = strike()
        except FairlaneError as error:
            what = f"refused: {type(error).__name__}"
        if what:
            self.faults[what.partition(":")[0]] += 1
            self._note(what)

    def _kill_worker(self) -> str:
        self._struck_s = monotonic()
        victims = self._workers()
        if not victims:
            return ""
        victim = self._chance.choice(victims)
        send([victim], signal.SIGKILL)
        return f"kill worker: {victim}"

    def _kill_all_workers(self) -> str:
        self._struck_s = monotonic()
        victims = self._workers()
        send(victims, signal.SIGKILL)
        return f"kill all workers: {victims}"

    def _kill_foreman(self) -> str:
        host = self._undisturbed()
        if host is None:
            return ""
        host.kill()
        self._struck_s = monotonic()
        self._later(2.0, host.start)
        return f"kill foreman: {host.foreman.pid}"

    def _halt_worker(self) -> str:
        """For some time, unless its foreman kills it first."""
        host = self._undisturbed()
        victims = self._workers([host]) if host else []
        if not victims:
            return ""
        self._struck_s = monotonic()
        victim = self._chance.choice(victims)
        send([victim], signal.SIGSTOP)
        self._later(1.5 * LEASE_S, lambda: send([victim], signal.SIGCONT))
        return f"halt worker: {victim}"

    def _halt_foreman(self) -> str:
        host = self._undisturbed()
        if host is None:
            return ""
        self._halt(host, [host.foreman.pid])
        return f"halt foreman: {host.foreman.pid}"

    def _halt_host(self) -> str:
        host = self._undisturbed()
        if host is None:
            return ""
        begin_s, pids = monotonic(), host.tree()
        self._halt(host, pids, lambda: self._halts.append(Halt(frozenset(pids), begin_s, monotonic())))
        return f"halt host: {pids}"

    def _halt(self, host: Host, pids: list[int], woke: Callable[[], None] = lambda: None) -> None:
        self._struck_s, host.is_halted = monotonic(), True
        halt(pids)
        # Nobody can write to a file in which a halted process writes: the store is away until that wakes.
        is_writer = self._file is not None and writer_of(self._file) in pids
        if is_writer:
            self._lose_store()

        def wake() -> None:
            send(pids, signal.SIGCONT)
            host.is_halted = False
            self._note(f"woke: {pids}")
            woke()
            if is_writer:
                self._find_store()

        self._later(1.5 * LEASE_S, wake)

    def _hang_up(self) -> str:
        host = self._undisturbed()
        if host is None:
            return ""
        host.foreman.signal(signal.SIGHUP)
        return f"hang up: {host.foreman.pid}"

    def _pause(self) -> str:
        admin = self._crew.app
        verbs, name = self._chance.choice(
            [(admin.tasks, LIMITED_TYPE), (admin.tenants, "t1"), (admin.tenants, "small")]
        )
        verbs.pause(name, refuse=self._chance.random() < 0.3)
        self._later(3.0, lambda: self._insist(lambda: verbs.resume(name)))
        return f"pause: {name}"

    def _change_limit(self) -> str:
        self._crew.app.limits.set(task=LIMITED_TYPE, running=self._chance.randint(1, PLACES["type"]))
        return "change limit"

    def _run_schedule(self) -> str:
        self._runs_by_hand += 1
        self._crew.app.schedules.run(SCHEDULED)
        return "run schedule"

    def _kill_server(self) -> str:
        assert self._place is not None
        self._lose_store()
        self._place.server.kill9()
        self._later(self._chance.choice(OUTAGES_S), self._start_server)
        return "kill server"

    def _restart_server(self) -> str:
        assert self._place is not None
        self._lose_store()
        self._place.server.stop()
        self._later(self._chance.choice(OUTAGES_S), self._start_server)
        return "restart server"

    def _start_server(self) -> None:
        assert self._place is not None
        self._place.server.start()
        self._find_store()

    def _halt_server(self) -> str:
        assert self._place is not None
        self._lose_store()
        postmaster = psutil.Process(self._place.server.pid)
        postmaster.suspend()
        pids = [postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))]
        send(pids, signal.SIGSTOP)

        def wake() -> None:
            send(pids, signal.SIGCONT)
            self._find_store()

        self._later(1.5, wake)
        return "halt server"

    def _lose_store(self) -> None:
        self._is_store_up = False
        self._note_state()

    def _find_store(self) -> None:
        self._is_store_up = True
        self._note("store is back")
        self._struck_s = self._was_store_away_s = monotonic()

    def _end_sessions(self) -> str:
        assert self._place is not None
        return f"end sessions: {self._place.end_sessions()}"

    def _cut(self) -> str:
        self._chance.choice(self._hosts).cut(how := self._chance.choice(("reset", "close")))
        return f"cut: {how}"

    def _cut_feeder(self) -> str:
        assert self._feeding_line is not None
        self._feeding_line.cut_all("reset")
        return "cut feeder"

    def _cut_off(self) -> str:
        host = self._undisturbed()
        if host is None:
            return ""
        self._struck_s = monotonic()
        host.cut_off()
        self._later(1.5 * LEASE_S, host.reconnect)
        return f"cut off: {host.foreman.pid}"

    def _hold_file(self) -> str:
        """Another program that holds the file's write lock."""
        held = apsw.Connection(str(self._file))
        held.setbusytimeout(2000)
        try:
            held.execute("begin immediate")
        except apsw.BusyError:
            held.close()
            return "hold file: too busy"
        self._lose_store()

        def let_go() -> None:
            held.execute("rollback")
            held.close()
            self._find_store()

        self._later(2.0, let_go)
        return "hold file"

    # The rest of the world

    def _line(self) -> Proxy | None:
        return None if self._place is None else self._open.enter_context(Proxy(self._place.server.port))

    def _url(self, line: Proxy | None) -> str:
        if self._place is None or line is None:
            return f"sqlite:///{self._file}"
        return self._place.through(line.port)

    def _host(self) -> Host:
        line = self._line()
        flags = ("-p", self._processes, "-s", "4/process", "--lease", f"{LEASE_S:g}s", "--grace", "3s")
        return Host(lambda: self._crew.start(*flags, app=APP, YARD_URL=self._url(line)), line)

    def _undisturbed(self) -> Host | None:
        """One of the hosts, if all are whole: only one at a time is away for long."""
        return self._chance.choice(self._hosts) if all(host.is_whole for host in self._hosts) else None

    def _revive(self) -> None:
        """Start again what ended by itself, as init would. It may: an application does not start without its store."""
        for host in self._hosts:
            if not host.is_down and (code := host.foreman.process.poll()) is not None:
                assert not self._is_store_up or monotonic() - self._was_store_away_s < 30 or host.is_cut_off, (
                    f"a foreman ended with {code}:\n{host.foreman.log()}"
                )
                self.faults["foreman without a store"] += 1
                host.start()

    def _look(self) -> None:
        for record in self._records.read():
            self._worked.add(record.pid)
            self._stepped_s = max(self._stepped_s, record.at_s)

    def _is_each_at_work(self) -> bool:
        self._look()
        return len(self._workers()) >= len(self._hosts)

    def _workers(self, hosts: list[Host] | None = None) -> list[int]:
        """Workers that have run jobs and can run more, of these hosts or of all."""
        foremen = {host.foreman.pid for host in hosts or self._hosts if host.is_able}
        found = []
        for pid in list(self._worked):
            try:
                process = psutil.Process(pid)
                parent, status = process.ppid(), process.status()
            except psutil.NoSuchProcess:
                self._worked.discard(pid)
            else:
                if parent in foremen and status not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
                    found.append(pid)
        return found

    def _note_state(self) -> None:
        """Extend the last stretch to now, or begin another."""
        state: State = "away"
        if self._is_store_up and any(host.is_able for host in self._hosts):
            state = "working" if self._workers() else "starting"
        now_s = monotonic()
        if self._stretches:
            self._stretches[-1] = self._stretches[-1]._replace(end_s=now_s)
        if not self._stretches or self._stretches[-1].state != state:
            self._stretches.append(Stretch(state, now_s, now_s))
            self._note(state)

    def _note(self, what: str) -> None:
        with self._timeline.open("a") as file:
            file.write(f"{monotonic():.2f} {what}\n")

    def _later(self, within_s: float, end: Callable[[], None]) -> None:
        heappush(self._endings, (monotonic() + self._chance.uniform(0.1, within_s), next(self._numbers), end))

    def _insist(self, act: Callable[[], object]) -> None:
        """Do it, later if the store is away."""
        try:
            if self._is_store_up:
                act()
                return
        except FairlaneError:
            pass
        self._later(1.0, lambda: self._insist(act))

    # The end

    def _calm(self) -> None:
        """End every fault, and watch for a moment more."""
        while self._endings:
            heappop(self._endings)[2]()
        until_s = monotonic() + 2.0
        while monotonic() < until_s:
            self._revive()
            self._look()
            self._note_state()
            sleep(0.02)

    def _drain(self, figures: Figures, feeder: Feeder) -> None:
        def is_drained() -> bool:
            self._look()
            self._revive()
            open_ones = self._crew.app.jobs.list(status=tuple(set(STATUSES) - FINAL), limit=5).jobs
            return not [job for job in open_ones if job.type != SCHEDULED]

        try:
            self._crew.eventually(is_drained, 120)
        except AssertionError as error:
            figures.wrong.append(str(error)[:200])
        self._look()

    def _judge_progress(self, figures: Figures) -> None:
        self._look()
        figures.away_s = sum(stretch.seconds for stretch in self._stretches if stretch.state == "away")
        for state, stop in longest_stops(self._records.all, self._stretches).items():
            figures.stops_s[state] = stop.seconds
            if state != "away" and stop.seconds > figures.most_s(state):
                figures.wrong.append(f"nothing ran from {stop.begin_s:.2f} to {stop.end_s:.2f}, {state}")

    def _all_jobs(self) -> dict[str, Job]:
        jobs, before = dict[str, Job](), None
        while True:
            page = self._crew.app.jobs.list(limit=200, before=before)
            jobs |= {str(job.id): job for job in page.jobs}
            if (before := page.next) is None:
                return jobs

    def _losses(self, jobs: dict[str, Job], feeder: Feeder, ended: set[str]) -> list[str]:
        """Acknowledged jobs that are gone, and any job that did not end as it must."""
        wrong = [f"job {job} was acknowledged and is not there" for job in feeder.fates.keys() - jobs.keys()]
        for key, job in jobs.items():
            fate = feeder.fates.get(key)
            ends = {"dead"} if fate == "dead" else {"completed"}
            if fate is None and job.type in MAY_DIE:
                ends.add("dead")  # its acknowledgement was cut off: nobody knows which of them it is
            if job.type == SCHEDULED and job.status not in FINAL:
                continue  # it has just fired
            if job.status not in ends:
                wrong.append(f"job {key} ({job.type}, {job.tenant}) is {job.status} ({job.error_type}), not {fate}")
            elif job.status == "completed" and key not in ended:
                wrong.append(f"job {key} ({job.type}, {job.tenant}) is completed and never ran to its end")
        return wrong

    def _firings(self, jobs: dict[str, Job], seconds: float) -> list[str]:
        """The schedule fires every minute, once, and misses none."""
        fired = sum(job.type == SCHEDULED for job in jobs.values())
        fewest, most = int(seconds / 60), int((monotonic() - self._started_s) / 60) + 1 + self._runs_by_hand
        return [] if fewest <= fired <= most else [f"the schedule fired {fired} times, not {fewest} to {most}"]
