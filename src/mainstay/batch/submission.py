"""From a study, parameter sets and seeds to a batch job."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from ..control import InsertResult
from ..errors import InvalidInput
from ..task import Draft, drafted, merge_options
from .locations import outputs_url
from .manifests import digest_of, groups_of
from .parameter_grid import seeds_of, sets_of
from .service import BatchService, count_of
from .spec import AggregationSpec, Spec
from .study import Batch, check_failure_budget

#: options of a submit that apply to the units, too
_SHARED = ("queue", "priority")
#: options of a study that apply to the batch, too
_OF_BOTH = ("queue", "priority", "grace", "tags", "metadata", "keep")
_OF_UNITS = frozenset(
    {
        "retries", "backoff", "backoff_base", "backoff_cap", "jitter", "crash_budget", "timeout", "stall_timeout",
        "on_stall", "concurrency_key",
    }
)  # fmt: skip


async def submit_batch(
    study: Batch,
    service: BatchService,
    *,
    params: Any,
    seeds: Any,
    outputs: str | None,
    force: bool,
    failure_budget: float | None,
    deadline: Any,
    runner: str,
    options: dict[str, Any],
) -> InsertResult:
    """Check the input, write the manifest, then the job."""
    client = study.client
    seeds = seeds_of(seeds)
    if seeds != [None] and "seed" not in study.unit.takes:
        raise InvalidInput(
            "seeds", f"{study.name} takes no `seed`, so every seed would give the same outputs; leave them out"
        )
    if seeds == [None] and "seed" in study.unit.takes:
        raise InvalidInput("seeds", f"{study.name} takes a `seed`; give some: seeds=range(10)")
    sets = sets_of(params)
    if any(sets) and "params" not in study.unit.takes:
        raise InvalidInput(
            "params", f"{study.name} takes no `params`, so every set would give the same outputs; leave them out"
        )
    for name in options:
        if name in _OF_UNITS:
            raise InvalidInput(name, f"belongs to each unit; write @app.batch({name}=...)")
    # takes a while for 100,000 units, and other tasks share this loop
    groups = await asyncio.to_thread(groups_of, study, sets, seeds)
    digest = await asyncio.to_thread(digest_of, groups)
    batch_options = merge_options({name: study.options[name] for name in _OF_BOTH if name in study.options}, options)
    if client.before_submit:
        draft = Draft(name=study.name, arguments={"params": groups[0].params, "seeds": seeds}, options=batch_options)
        batch_options = drafted(client.before_submit, draft).options
    shared = {name: batch_options[name] for name in _SHARED if name in batch_options}
    spec = Spec(
        study=study.name,
        code=study.code,
        outputs=service.output_stores.stored(outputs_url(outputs, client.url)),
        files=study.outputs,
        sets=len(groups[0].params),
        units=len(groups[0].pairs),
        expected=count_of(groups),
        manifest=digest,
        aggregations=tuple(AggregationSpec(one.name, one.over) for one in study.aggregations),
        plan=client.reader.read({**study.options, **shared}),
        failure_budget=study.failure_budget if failure_budget is None else check_failure_budget(failure_budget),
        verify=study.verify,
        force=force,
        runner=runner,
        sources=study.sources,
    )
    # the same work does not run twice at a time: a second submit gets the first job
    place = hashlib.sha256(spec.outputs.encode()).hexdigest()[:16]
    same = {} if "key" in batch_options or "unique" in batch_options else {"unique": f"{digest} {place}"}
    limits = {"retries": 0, "timeout": "off" if deadline is None else deadline, "stall_timeout": "off"}
    plan = client.reader.read({**limits, **same, **batch_options})
    return await service.submit(spec, groups, plan)
