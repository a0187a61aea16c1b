"""Requests about load tests on the nodes of a cluster, as flows: the code first, then the run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from ..errors import UnknownOption
from ..load import Summary
from ..load.live_messages import RunMessage
from ..stores import Durability
from ..web.api import SubmitResponse
from .calls import get, packed_all, post
from .core import Core, Duration, job_path
from .exchange import Blocking, Flow, RetryPause
from .resumable_stream import ResumableStream, run_stream
from .submit_request import sent_option

if TYPE_CHECKING:
    from ..bundles import Bundle, BundleLimits, PublishResult, PublishStep
    from ..load import FleetDemand, LoadOptions, LoadTest
    from ..load.fleet.submission_steps import FleetRequest, PlannedRun, SubmissionStep


class LoadJobOptions(TypedDict, total=False):
    """Options of a job that a run on nodes may have; the others follow from its plan."""

    key: str | None
    key_ttl: Duration | None
    priority: int | None
    delay: Duration | None
    run_at: datetime | None
    timeout: Duration | None
    concurrency_key: str | None
    tags: Sequence[str] | None
    metadata: Mapping[str, str] | None
    keep: Duration | None
    durability: Durability | None


class _Digests(msgspec.Struct):
    digests: list[str]


class _Placement(msgspec.Struct):
    problem: str


class LoadCore:
    """Load tests."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def summary(self, job_id: str) -> Flow[Summary]:
        return self._core.ask(get(job_path(job_id, "summary"), Summary, self._core.query()))

    def stream(self, job_id: str, *, detail: bool) -> ResumableStream[RunMessage]:
        return run_stream(self._core, job_id, detail=detail)

    def submit(
        self,
        test: LoadTest | str | Path,
        load: LoadOptions | None,
        nodes: int | FleetDemand,
        options: Mapping[str, Any],
        on_note: Callable[[str], None],
    ) -> Flow[SubmitResponse]:
        """Plan a run, publish its code, and submit it."""
        sent = run_options(options)
        from ..load.fleet.submission_steps import planned_on_nodes  # noqa: PLC0415 - an extra

        planned, demand = yield Blocking(partial(planned_on_nodes, test, load, nodes))
        request = yield from self.prepare(planned, demand, on_note, key=options.get("key"))
        return (yield from self.insert(request, sent))

    def prepare(
        self, planned: PlannedRun, demand: FleetDemand, on_note: Callable[[str], None], *, key: str | None = None
    ) -> Flow[FleetRequest]:
        """Check everything, wait for nodes that are still starting, and publish the code."""
        from ..load.fleet.submission_steps import submission  # noqa: PLC0415 - an extra

        steps = submission(planned, demand, key=key, now_s=self._core.now, on_note=on_note)
        try:
            step = next(steps)
            while True:
                step = steps.send((yield from self._carried_out(step)))
        except StopIteration as done:
            request: FleetRequest = done.value
            return request

    def insert(self, request: FleetRequest, options: Mapping[str, Any]) -> Flow[SubmitResponse]:
        """Submit a prepared run, with the options of its job as they are sent."""
        key = None if "key" in options else self._core.key()
        wait = None if request.wait_s is None else f"{round(request.wait_s * 1000)}ms"
        given = {**options, "run": request.options, "wait": wait}
        body = packed_all({name: value for name, value in given.items() if value is not None})
        return self._core.ask(post("/loads", SubmitResponse, safe=True, packed=body, Idempotency_Key=key))

    def publish(self, bundle: Bundle, limits: BundleLimits) -> Flow[PublishResult]:
        """Send the parts of a bundle that the cluster does not have."""
        from ..bundles import RETRIED, publication_steps  # noqa: PLC0415 - only for code that is sent

        steps = publication_steps(bundle, limits=limits)
        try:
            step: PublishStep = yield Blocking(partial(next, steps))
            while True:
                try:
                    answer = yield from self._published(step)
                except RETRIED as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            result: PublishResult = done.value
            return result

    def _carried_out(self, step: SubmissionStep) -> Generator[Any, Any, Any]:
        from ..bundles import BundleLimits  # noqa: PLC0415 - as above
        from ..load.fleet import submission_steps as of  # noqa: PLC0415 - an extra

        match step:
            case of.AskBundleLimits():
                return (yield from self._core.ask(get("/bundles/limits", BundleLimits)))
            case of.AskCoreProblem(cores, name, key):
                question = {"demand": cores, "name": name, "key": key}
                found = yield from self._post("/loads/placement", _Placement, question)
                return found.problem
            case of.BlockingCall(call):
                return (yield Blocking(call))
            case of.PublishCode(bundle, limits):
                return (yield from self.publish(bundle, limits))
            case of.SubmissionPause(pause_s):
                yield RetryPause(pause_s)
        return None

    def _published(self, step: PublishStep) -> Generator[Any, Any, list[str] | None]:
        from .. import bundles as of  # noqa: PLC0415 - as above

        match step:
            case of.PutParts(digests, packed, sent):
                for digest in digests:
                    content = yield Blocking(partial(packed, digest))
                    yield from self._post("/bundles/parts", _Digests, {"digest": digest, "packed": content})
                    sent(digest)
            case of.AskMissing(digests):
                return _digests((yield from self._post("/bundles/missing", _Digests, {"digests": digests})))
            case of.BeginBundle(digest):
                yield from self._post("/bundles/begin", dict[str, Any], {"digest": digest})
            case of.CommitBundle(digest, name):
                body = {"digest": digest, "name": name}
                return _digests((yield from self._post("/bundles/publish", _Digests, body)))
            case of.PublishPause(pause_s):
                yield RetryPause(pause_s)
        return None

    def _post(self, path: str, into: Any, body: dict[str, Any]) -> Flow[Any]:
        # all of them can be repeated
        return self._core.ask(post(path, into, safe=True, packed=packed_all(body)))


def _digests(answer: _Digests) -> list[str]:
    return answer.digests


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the job as they are sent; raises `InvalidInput`.

    >>> run_options({"key": "nightly", "durability": None})
    {'key': 'nightly'}
    """
    for name in options:
        if name not in LoadJobOptions.__annotations__:
            raise UnknownOption(name, LoadJobOptions.__annotations__)
    return {name: sent_option(name, value) for name, value in options.items() if value is not None}


__all__ = ["LoadCore", "LoadJobOptions", "run_options"]
