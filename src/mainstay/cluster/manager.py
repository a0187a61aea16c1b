"""A manager: holds the store of a datacenter, answers nodes and operators over the bus, and competes for the leads.

A manager remembers nothing that matters. Its nodes speak to subjects, not to one manager, so any other manager answers
when this one dies. What it decides is fenced by the epoch of the lead `placement`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..app import App
from ..bundles import BundleClient, BundleLimits, BundleService
from ..bus import Admission, Bus, MessageClass, OverloadLevel
from ..control import Control, Duties, MemberSessions
from ..control.check import watching
from ..errors import StoreError
from ..kinds import kinds, part
from ..model import Leadership, Session, Settings
from ..outputs import Blobs
from ..stores import JobStore
from ..stores.remote import MAINSTAY_VERSION, ManagerConnection, RemoteCaller, StoreService
from ..worker import LeadHost, Outage, state_folder
from .cluster_service import ClusterService
from .core_readings import CoreReadings
from .core_view import ClusterCores
from .journal import ClusterJournal
from .lead_engine import LeadEngine
from .liveness_settings import LivenessSettings
from .manager_load import LoadSample, ManagerLoad
from .managers import ManagerDirectory
from .members_service import MembersService
from .output_messages import JobOutput, JobOutputQuery
from .output_requests import OutputRequests
from .status import ClusterStatus, JournalEntry, LeadInfo, LeadTerm, ManagerInfo, NodeInfo

log = logging.getLogger("mainstay.cluster")

_LOOK_S = 0.5
#: running jobs in one status
_RUNNING_SHOWN = 10_000
#: alarms that a manager reports to the others
_ALARMS = 50
#: jobs that it leads, in one answer
_LED = 100


class ManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a manager runs."""

    name: str
    cluster: str = "local"
    environment: str = "default"
    state: str = ""
    """the folder of its journal and of the recordings of what it leads; empty: it keeps no journal"""


class Manager:
    """A service: `start`, then `stop`. The store, the bus and the blobs belong to the caller. Without blobs it refuses
    every request for a bundle."""

    def __init__(
        self,
        store: JobStore,
        bus: Bus,
        options: ManagerOptions,
        *,
        settings: Settings | None = None,
        liveness: LivenessSettings | None = None,
        allowed_queues: Callable[[str], Sequence[str] | None] = lambda _: None,
        blobs: Blobs | None = None,
        bundle_limits: BundleLimits | None = None,
        rng: random.Random | None = None,
        host: str | None = None,
        pid: int | None = None,
        version: str = MAINSTAY_VERSION,
        data_bus: Bus | None = None,
        sample_load: Callable[[float], LoadSample] | None = None,
    ) -> None:
        """`data_bus` is a second connection for reads, windows and what is only looked at, so that a flood of them does
        not hold up the rest; without one, all go over `bus`. `sample_load` tells how loaded this manager is, given how
        late its event loop runs; by default from what this process uses."""
        self._store = store
        self._bus = bus
        #: the connection for reads and windows
        self.data_bus = data_bus or bus
        self._options = options
        self._rng = rng = rng or random.Random()
        self._host = socket.gethostname() if host is None else host
        self._pid = os.getpid() if pid is None else pid
        self._version = version
        self._liveness = liveness or LivenessSettings()
        self._control = Control(store, settings=settings, rng=rng, actor=f"manager:{options.name}")
        self._session: Session | None = None
        self._leader: Duties | None = None
        self._placement: Duties | None = None
        self._changing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._started_ms = store.clock.now_ms()
        self._terms: dict[str, LeadTerm] = {}
        self.load = ManagerLoad(sample=sample_load, on_change=self._note_level)
        self.admission = Admission(level=lambda: self.load.level)
        self.journal = ClusterJournal(Path(options.state) if options.state else None, clock=store.clock)
        self.members = MembersService(
            bus,
            store,
            manager=options.name,
            leading=lambda: None if self._placement is None else self._placement.lead,
            led_elsewhere=lambda: self._placement is None or self._placement.may_be_led_elsewhere,
            clock=store.clock,
            rng=rng,
            settings=self._liveness,
            journal=self.journal,
            version=version,
            cluster=options.cluster,
            environment=options.environment,
        )
        self.calls = StoreService(
            store,
            bus,
            manager=options.name,
            cluster=options.cluster,
            environment=options.environment,
            version=version,
            allowed_queues=allowed_queues,
            may_claim=self.members.may_claim,
            admission=self.admission,
            data_bus=self.data_bus,
        )
        self._outputs = OutputRequests(bus, store)
        self.managers = ManagerDirectory(bus, self.info)
        self.requests = ClusterService(
            bus,
            self,
            manager=options.name,
            cluster=options.cluster,
            environment=options.environment,
            version=version,
            admission=self.admission,
            data_bus=self.data_bus,
        )
        self.bundles = BundleService(
            blobs,
            self.data_bus,
            name=options.name,
            cluster=options.cluster,
            environment=options.environment,
            clock=store.clock,
            limits=bundle_limits,
            in_use=self._bundles_in_use,
            rng=rng,
            admission=self.admission,
        )
        leading = LeadHost(
            control=self._control,
            bus=bus,
            data_bus=self.data_bus,
            admission=self.admission,
            folder=self._recordings,
            rng=rng,
        )
        self._led = leading.counts
        self.leading_jobs = LeadEngine(leading, worker=options.name, machine=self._host, pid=self._pid)
        placed = MemberSessions(
            store, self._heard, away_s=self._liveness.away_s, degraded=self.members.degraded_sessions
        )
        self._placing = Control(placed, settings=self._control.settings, rng=rng, actor=f"manager:{options.name}")
        self._cores = CoreReadings(placed, self.members.nodes)
        #: what an operator should change about the bus and the certificates, beside the alarms about nodes
        self.findings: list[str] = []
        # without tasks: it brings the duties of every installed kind
        self._app = App(store.url, rng=rng)

    @property
    def leading(self) -> bool:
        """Whether it holds the lead `placement`, as far as it knows."""
        return self._placement is not None and self._placement.leading

    async def start(self) -> None:
        """Open its session, and begin to answer and to compete for the leads."""
        await self._open_session()
        await self.load.start()
        await self.members.start()
        await self.managers.start()
        await self.calls.start()
        await self.requests.start()
        await self.bundles.start()
        await self.leading_jobs.start()
        loops: Sequence[Coroutine[Any, Any, None]] = (self._beat(), self._sweep(), self._watch_leads())
        self._tasks = [asyncio.create_task(loop, name="mainstay manager") for loop in loops]

    async def stop(self) -> None:
        """Give up what it leads first, so that another manager leads at once; then stop answering. Safe to call
        twice."""
        await self.leading_jobs.stop()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._stop_leads()
        await self.bundles.stop()
        await self.requests.stop()
        await self.calls.stop()
        await self.managers.stop()
        await self.members.stop()
        await self.load.stop()
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(StoreError):  # its lock is free, or its lease ends
                await self._control.claims.close_session(session.id)
        self.journal.close()

    def _recordings(self) -> Path:
        """The folder of the recordings of load tests."""
        if not self._options.state:
            return state_folder("load")
        folder = Path(self._options.state) / "load"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    # its session and its leads -------------------------------------------------------------------

    async def _open_session(self) -> None:
        self._session = await self._control.claims.open_session(
            worker=self._options.name, host=self._host, pid=self._pid
        )
        await self._start_leads(self._session)

    async def _start_leads(self, session: Session) -> None:
        async with self._changing:
            await self._stop_duties()
            control = self._control
            self._leader = control.duties(
                session.id, check=watching(control.store), extra=list(self._app.duties(control))
            )
            duties = self._app.placement_duties(self._placing, session.id)
            self._placement = self._placing.placement_duties(session.id, duties)
            self._leader.start()
            self._placement.start()

    async def _stop_leads(self) -> None:
        async with self._changing:
            await self._stop_duties()

    async def _stop_duties(self) -> None:
        services = [each for each in (self._placement, self._leader) if each is not None]
        self._placement = self._leader = None
        for service in services:
            await service.stop()

    async def _beat(self) -> None:
        every_s = self._control.settings.heartbeat_s
        outage = Outage("heartbeat", self._rng, longest_s=every_s)
        while True:
            wait_s = every_s
            try:
                assert self._session is not None
                (pulse,) = await self._control.claims.beat([self._session.id])
                if not pulse.known:
                    log.warning("session lost session=%s; another one is opened", self._session.id)
                    await self._open_session()
                outage.over()
            except Exception as error:  # noqa: BLE001 - a manager without heartbeats leads nothing, whatever failed
                wait_s = outage.failed(error)
            await asyncio.sleep(wait_s)

    async def _sweep(self) -> None:
        every_s = self._control.settings.sweep_s
        outage = Outage("sweep", self._rng)
        while True:
            wait_s = every_s * self._rng.uniform(0.75, 1.25)
            try:
                swept = await self._control.sweeper.sweep()
                if not swept.waiting:
                    outage.over()
            except Exception as error:  # noqa: BLE001 - recovery must not stop, whatever failed
                wait_s = outage.failed(error)
            await asyncio.sleep(wait_s)

    async def _watch_leads(self) -> None:
        """Keep the terms of its leads. Write into the journal when it takes or loses the lead `leader`; the members do
        that for `placement`."""
        while True:
            self._follow_lead("leader", self._leader)
            self._follow_lead("placement", self._placement)
            await asyncio.sleep(_LOOK_S)

    def _follow_lead(self, name: str, duties: Duties | None) -> None:
        lead = None if duties is None else duties.lead
        held = self._terms.get(name)
        if lead is None:
            if self._terms.pop(name, None) is not None and name == "leader":
                self._note("lead_lost", name, f"{self._options.name} no longer leads {name}")
        elif held is None or held.epoch != lead.epoch:
            now_ms = self._store.clock.now_ms()
            self._terms[name] = LeadTerm(epoch=lead.epoch, since_ms=now_ms, takeover_s=self.managers.unled_s(name))
            if name == "leader":
                self._note("lead_taken", name, f"{self._options.name} leads {name} in epoch {lead.epoch}")

    def _note_level(self, level: OverloadLevel, sample: LoadSample) -> None:
        name = self._options.name
        self._note("manager_level", name, f"manager {name} is {level}: {sample.text}", cause=sample.cause)

    def _note(self, event: str, about: str, text: str, *, cause: str = "") -> None:
        log.info("%s: event=%s about=%s", text, event, about)
        try:
            self.journal.append(event, about, text, manager=self._options.name, cause=cause)
        except OSError as error:  # a full disk stops nothing but the journal
            log.warning("cannot write the journal: error=%s", error)

    def bundle_client(self) -> BundleClient:
        """Asks the managers for bundles, this one or another."""
        options = self._options
        return BundleClient(
            self._bus,
            role="manager",
            name=options.name,
            cluster=options.cluster,
            environment=options.environment,
            version=self._version,
            rng=self._rng,
        )

    @property
    def connection(self) -> ManagerConnection:
        """Its connection to the bus, for what runs in its process."""
        options = self._options
        caller = RemoteCaller(
            role="manager", name=options.name, cluster=options.cluster, environment=options.environment
        )
        return ManagerConnection(self._bus, caller)

    # what others see ------------------------------------------------------------------------------

    def info(self) -> ManagerInfo:
        """This manager."""
        return ManagerInfo(
            name=self._options.name,
            host=self._host,
            pid=self._pid,
            version=self._version,
            started_ms=self._started_ms,
            session="" if self._session is None else self._session.id,
            leads=self._terms,
            refused=self.refused(),
            closed=dict(self.members.closed),
            stale=self.calls.stale,
            dispatches=self._dispatches(),
            cancels_unconfirmed=self._led["cancels_unconfirmed"],
            windows_late=self._led["windows_late"],
            led=tuple(sorted(self.leading_jobs.leads))[:_LED],
            alarms=self._alarms(),
            level=self.load.level,
            shed=self._shed(),
            limited={kind.value: n for kind, n in self.admission.limited.items()},
        )

    async def status(self) -> ClusterStatus:
        """The cluster as this manager sees it."""
        managers = self.managers.known()
        by_session = {each.session: each for each in managers}
        leads = (await self._store.stats()).leads
        refused: Counter[str] = Counter()
        for each in managers:
            refused.update(each.refused)
        return ClusterStatus(
            cluster=self._options.cluster,
            environment=self._options.environment,
            at_ms=self._store.clock.now_ms(),
            manager=self._options.name,
            managers=managers,
            nodes=_shortened(self.members.nodes()),
            leads=[_lead_info(name, lead, by_session.get(lead.holder)) for name, lead in sorted(leads.items())],
            journal=self.journal_entries(),
            # two managers see most of them both, as the same sentence
            alarms=list(dict.fromkeys(text for each in managers for text in each.alarms.values())),
            refused=dict(refused),
            away_s=self._liveness.away_s,
            closed_s=self._liveness.closed_s,
        )

    async def cores(self) -> ClusterCores:
        """The cores of the nodes, with the runs that hold them and those that wait."""
        return await self._cores.read()

    def _dispatches(self) -> dict[str, int]:
        """What became of the work that it has assigned to nodes, by outcome."""
        return {} if self._placement is None else dict(self._placement.counts())

    def _shed(self) -> dict[str, int]:
        """Requests that it refused because of its load, and messages that its queues dropped, by class."""
        buses = {id(bus): bus for bus in (self._bus, self.data_bus)}
        counts: Counter[MessageClass] = Counter(self.admission.shed)
        for bus in buses.values():
            counts.update(bus.dropped)
        return {kind.value: n for kind, n in counts.items()}

    def _alarms(self) -> dict[str, str]:
        """What it reports: sort and name of an alarm -> a sentence."""
        # its own surroundings first: many nodes must not hide them
        setup = [*self.findings, *([self.leading_jobs.problem] if self.leading_jobs.problem else [])]
        around = {**{f"setup:{text}": text for text in setup}, **self.managers.alarms()}
        return dict([*around.items(), *sorted(self.members.alarms().items())][:_ALARMS])

    def peers(self) -> list[str]:
        """The other managers, by name."""
        return [each.name for each in self.managers.known() if each.name != self._options.name]

    def journal_entries(
        self, *, from_ms: int | None = None, until_ms: int | None = None, most: int = 50
    ) -> list[JournalEntry]:
        """The newest entries of its own journal in a time range, the newest last."""
        return self.journal.entries(from_ms=from_ms, until_ms=until_ms, limit=most)

    async def output(self, query: JobOutputQuery) -> JobOutput:
        """What a node has kept of the output of a job."""
        return await self._outputs.output(query)

    def _heard(self) -> dict[str, float]:
        """By session: how many seconds ago a manager heard its node."""
        now_ms = self._store.clock.now_ms()
        return {
            session: (now_ms - info.heard_ms) / 1000
            for info in self.members.nodes()
            if info.state in ("active", "draining")
            for session in info.beat.sessions
            if session not in self.members.state.pending  # it is being closed: work for it would be taken back
        }

    async def _bundles_in_use(self) -> dict[str, str]:
        """The code that nodes run and that jobs need, by digest, with the reason why it is not removed."""
        found: dict[str, str] = {}
        for kind in kinds():
            if kind.bundles:
                found |= await part(kind.bundles)(self._store)
        nodes = [info for info in self.members.nodes() if info.state != "closed"]
        return found | {info.beat.digest: f"node {info.name} runs it" for info in nodes}

    def refused(self) -> Mapping[str, int]:
        """Refused requests, by reason."""
        counts: dict[str, int] = {}
        sources = (self.calls.refused, self.requests.refused, self.members.ignored, self.bundles.refused)
        for source in sources:
            for reason, n in source.items():
                counts[reason] = counts.get(reason, 0) + n
        return counts

    async def drain(self, node: str, by: str) -> bool:
        """Ask the sessions of a node to drain. False: no such node is open."""
        # nodes alone have standing sessions; a manager that was just started has not heard the node yet
        sessions = [
            each.id for each in await self._store.sessions() if each.worker == node and each.standing and not each.dead
        ]
        if not sessions:
            return False
        asked = await self._store.drain(sessions, by=by)
        self._note("node_draining", node, f"{by} asked node {node} to drain")
        return any(asked)


def _shortened(nodes: list[NodeInfo]) -> list[NodeInfo]:
    """Nodes with as many of their running jobs as fit into one message with those of all others."""
    most = max(1, _RUNNING_SHOWN // max(1, len(nodes)))
    return [
        info
        if len(info.beat.running) <= most
        else msgspec.structs.replace(info, beat=msgspec.structs.replace(info.beat, running=info.beat.running[:most]))
        for info in nodes
    ]


def _lead_info(name: str, lead: Leadership, manager: ManagerInfo | None) -> LeadInfo:
    term = None if manager is None else manager.leads.get(name)
    of_epoch = term is not None and term.epoch == lead.epoch
    return LeadInfo(
        name=name,
        manager="" if manager is None else manager.name,
        session=lead.holder,
        epoch=lead.epoch,
        since_ms=term.since_ms if term is not None and of_epoch else None,
        takeover_s=term.takeover_s if term is not None and of_epoch else None,
    )


__all__ = ["Manager", "ManagerOptions"]
