"""NodeJob: a class that runs on every node and then once at the leader, declared by `@app.node_job`."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Unpack

import msgspec

from ..control import Control, Decide, JobRequest, check_name, open_nodes
from ..control.schedules import ScheduledJob
from ..errors import InvalidInput
from ..task import AppClient, Draft, Returns, Signature, drafted, name_of
from .decisions import matching
from .handle import NodeHandle, NodeReturns
from .methods import NodeMethods
from .options import NodeJobOptions, NodeOptions, NodeSubmitOptions
from .spec import LEADER, LOCAL, NodePolicy, NodeSpec, row_name, stored_arguments


class NodeCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One submit of a node job, checked but not submitted: `Compact.job(table="events")`. For `app.schedule`."""

    job: NodeJob
    options: NodeOptions
    arguments: bytes
    """packed, not sealed"""

    @property
    def policy(self) -> NodePolicy:
        return self.job.read_policy(self.options)

    def request(self) -> JobRequest:
        """The request for control, after the hooks of the app, with sealed arguments."""
        client = self.job.client
        job_options = self.options.of_job()
        if client.before_submit:
            draft = Draft(name=self.job.name, arguments=self.job.signature.given(self.arguments), options=job_options)
            job_options = drafted(client.before_submit, draft).options
        payload = self.payload(stored_arguments(self.arguments, client.sealer))
        plan = client.reader.read(job_options)
        return JobRequest(self.job.name, msgspec.Raw(payload), plan, content=self.arguments)

    def scheduled(self) -> ScheduledJob:
        """The job of each tick of a schedule."""
        # on_clash is about submits; a tick submits nothing while a unique job is unsettled
        options = {name: value for name, value in self.options.of_job().items() if name != "on_clash"}
        return ScheduledJob(name=self.job.name, payload=self.payload(msgspec.Raw(self.arguments)), options=options)

    def payload(self, arguments: msgspec.Raw) -> bytes:
        plan = self.options.read_units(self.job.client.reader)
        return msgspec.msgpack.encode(NodeSpec(policy=self.policy, plan=plan, arguments=arguments))


class NodeSubmits:
    """Submits a node job, with one set of options."""

    def __init__(self, job: NodeJob, options: NodeOptions) -> None:
        self._job = job
        self._options = options

    def options(self, **options: Unpack[NodeSubmitOptions]) -> NodeSubmits:
        """The same job with other options, for one submit or many. Tags and metadata are added to those of the job."""
        merged = NodeOptions(options, base=self._options)
        self._job.check(merged)
        return NodeSubmits(self._job, merged)

    @property
    def policy(self) -> NodePolicy:
        """How its jobs run, with these options."""
        return self._job.read_policy(self._options)

    def job(self, *args: Any, **kwargs: Any) -> NodeCall:
        """A checked submit with these arguments, for `app.schedule`."""
        return NodeCall(job=self._job, options=self._options, arguments=self._job.signature.pack(args, kwargs))

    async def submit(self, *args: Any, **kwargs: Any) -> NodeHandle:
        """Submit it; returns when it is stored. Raises `InvalidInput` for arguments that do not fit, for labels that no
        active node has, and for a quorum above the number of active nodes. Without any active node it waits for one."""
        call, client = self.job(*args, **kwargs), self._job.client
        request = call.request()
        control = client.connection.control or await client.open()
        if not is_for_later(request):
            await check_nodes(control, call.policy)
        return NodeHandle.submitted(client, self._job.returns, await control.jobs.submit_request(request))

    def submit_sync(self, *args: Any, **kwargs: Any) -> NodeHandle:
        """`submit`, for code without an event loop."""
        return self._job.client.run(lambda: self.submit(*args, **kwargs), what="submit_sync")


class NodeJob(NodeSubmits):
    """A class that runs on every node and then once at the leader: declared by `@app.node_job`.

    Calling it makes an object of the class, as tests do: `Compact().local(node, "events")`.
    """

    def __init__(self, client: AppClient, owner: Any, **given: Unpack[NodeJobOptions]) -> None:
        if not inspect.isclass(owner):
            rule = f"{owner!r} is not a class; write @app.node_job, or @app.node_job(name=...), above one"
            raise InvalidInput("node_job", rule)
        self.name = name_of(owner, given.get("name"), kind="node_job")
        methods = NodeMethods(owner, self.name)
        check_name(row_name(self.name, LEADER))
        self.owner = methods.owner
        self.methods = methods
        self.client = client
        self.signature: Signature = methods.signature
        self.process = given.get("process", False)
        if not isinstance(self.process, bool):
            raise InvalidInput("process", f"{self.process!r} is neither True nor False")
        self.decide: Decide | None = given.get("policy")
        if self.decide is not None and not callable(self.decide):
            raise InvalidInput("policy", "must be a function that decides about retries")
        local = Any if methods.local is None else methods.local.returns
        self.returns = NodeReturns(self.name, _checked_return(methods, LEADER), local, client.sealer)
        self.local_returns: Returns[Any] = self.returns.local
        super().__init__(self, NodeOptions(given, declared=True))
        self.check(self._options)
        functools.update_wrapper(self, owner, updated=())

    def check(self, options: NodeOptions) -> None:
        """Read all options, to refuse wrong ones where they are written."""
        self.read_policy(options)
        options.read_units(self.client.reader)
        self.client.reader.read(options.of_job())

    def read_policy(self, options: NodeOptions) -> NodePolicy:
        return options.read_policy(has_local=self.methods.local is not None, has_leader=self.methods.leader is not None)

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters without a default."""
        return self.signature.required

    @property
    def phases(self) -> tuple[str, ...]:
        """Which of its methods it has."""
        return tuple(method.which for method in (self.methods.local, self.methods.leader) if method is not None)

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of its units' rows."""
        return tuple(row_name(self.name, phase) for phase in self.phases)

    def handle(self, job_id: str) -> NodeHandle:
        """One of its jobs, by id."""
        return NodeHandle(self.client, self.returns, job_id)

    def __call__(self) -> Any:
        return self.owner()

    def __repr__(self) -> str:
        return f"<node job {self.name}>"


def _checked_return(methods: NodeMethods, which: str) -> Any:
    method = methods.leader if which == LEADER else methods.local
    return Any if method is None else method.returns


def is_for_later(request: JobRequest) -> bool:
    """Whether it begins later: other nodes may be active then."""
    plan: Any = request.options
    return bool(plan.delay_ms or plan.run_at_ms or plan.after)


async def check_nodes(control: Control, policy: NodePolicy) -> None:
    """Refuse a job that the active nodes could not run, if there are any."""
    nodes = list(open_nodes(await control.store.sessions(), lease_ms=control.store.clock.lease_ms()).values())
    if not nodes or not policy.has_local:
        return
    fitting = matching(nodes, policy.labels)
    if not fitting:
        for name, value in policy.labels.items():
            if not matching(nodes, {name: value}):
                raise InvalidInput(f"labels.{name}", f"no active node has the label {name}={value}")
        raise InvalidInput("labels", "no active node has all of these labels")
    if isinstance(policy.quorum, int) and policy.quorum > len(fitting):
        raise InvalidInput("quorum", f"{policy.quorum} is above the number of active nodes, {len(fitting)}")


__all__ = ["LOCAL", "NodeCall", "NodeJob", "NodeSubmits", "check_nodes", "is_for_later"]
