"""What batches add to an app: `@app.batch`, `app.submit_batch`, and the batches by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from ..worker import AppBase

if TYPE_CHECKING:
    from ..task import AppClient
    from ..task.options import SubmitOptions
    from .declarations import Batches
    from .handle import BatchRun
    from .runners import Runners
    from .study import Batch, BatchOptions


class BatchMethods(AppBase):
    """The methods of an app that concern batches."""

    client: AppClient

    @property
    def _batches(self) -> Batches:
        found: Batches = self.part("batch")
        return found

    def batch(self, /, **options: Unpack[BatchOptions]) -> Callable[[Callable[..., Any]], Batch]:
        """Make a study of a function that is run for many parameter sets and seeds:
        `@app.batch(outputs={"result": "result.npy"}, aggregate=score)`.

        The function takes `params`, `seed` and `out`, those that it names. Every declared output must be written, to
        `out["result"]`. `aggregate` is a function of `params` and `runs`, called for each set of parameters; `overall`
        one of `sets`, called at the end. `version` says which code it is: what changes results changes it, and by
        default it is a digest of the function's text. `failure_budget` stops early when more than this part of the
        units has failed. The other options are those of a task, for each unit.
        """
        return lambda function: self._batches.declare(function, options)

    async def submit_batch(
        self,
        study: Batch,
        *,
        params: Iterable[Any] | None = None,
        seeds: Iterable[int] | int | None = None,
        outputs: str | None = None,
        force: bool = False,
        failure_budget: float | None = None,
        deadline: str | timedelta | None = None,
        runner: str = "local",
        **options: Unpack[SubmitOptions],
    ) -> BatchRun:
        """Submit a study for each of some sets of parameters (`grid(beta=[...])`) and each seed.

        What is to be made is written to the store of the outputs first; units whose outputs are there already are not
        run, unless `force` makes everything anew. The same work that is submitted again while it is not settled is the
        same job. `deadline` is a limit for all of it; looking at the outputs in the end does not count. `runner` says
        where its units run: on workers, elsewhere by a runner that the app was given, or by a command line
        (`exec:nice {command}`).
        """
        return await self._batches.submit(
            study,
            params=params,
            seeds=seeds,
            outputs=outputs,
            force=force,
            failure_budget=failure_budget,
            deadline=deadline,
            runner=runner,
            options=dict(options),
        )

    def submit_batch_sync(self, study: Batch, **given: Any) -> BatchRun:
        """`submit_batch`, for code without an event loop."""
        return self.client.run(lambda: self.submit_batch(study, **given), what="submit_batch_sync")

    def batch_run(self, job_id: str) -> BatchRun:
        """A batch that was submitted, by its id."""
        return self._batches.run(job_id)

    @property
    def batches(self) -> Mapping[str, Batch]:
        """The batches by name."""
        return MappingProxyType(self._batches.studies)

    @property
    def runners(self) -> Runners:
        """Where batches can run, besides workers."""
        return self._batches.outsides.runners


__all__ = ["BatchMethods"]
