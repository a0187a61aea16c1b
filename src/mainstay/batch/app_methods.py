"""What batches add to an app: `@app.batch`, `app.submit_batch`, and the batches by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from ..worker import AppBase

if TYPE_CHECKING:
    from ..task import AppClient, SubmitOptions
    from .declarations import Batches
    from .handle import BatchRun
    from .runners import Runners
    from .study import Batch, BatchOptions


class BatchMethods(AppBase):
    """The methods of an app that concern batches."""

    client: AppClient

    @property
    def _batches(self) -> Batches:
        batches: Batches = self.part("batch")
        return batches

    def batch(self, /, **options: Unpack[BatchOptions]) -> Callable[[Callable[..., Any]], Batch]:
        """Declare a function as a study, to run for many parameter sets and seeds:
        `@app.batch(outputs={"result": "result.npy"}, aggregate=score)`.

        The function takes any of `params`, `seed` and `out`. It must write every declared output, to `out["result"]`.
        `aggregate` is a function of `params` and `runs`, called for each parameter set; `overall` is a function of
        `sets`, called at the end. `version` identifies the code: change it with every change of the results. Default: a
        digest of the function's source. `failure_budget` stops the batch early when a larger share of the units has
        failed. The other options are those of a task, for each unit.
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
        """Submit a study for every parameter set (`grid(beta=[...])`) and every seed.

        The manifest is written to the output store first. Units whose outputs exist are not run, unless `force` is set.
        Submitting the same work again before it is settled returns the same job. `deadline` limits the time of the
        batch, without the validation at the end. `runner` is where its units run: "local" for workers, the name of a
        runner of the app, or a command line (`exec:nice {command}`).
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
        """A submitted batch by its id."""
        return self._batches.run(job_id)

    @property
    def batches(self) -> Mapping[str, Batch]:
        """The batches by name."""
        return MappingProxyType(self._batches.studies)

    @property
    def runners(self) -> Runners:
        """The outside runners of the app."""
        return self._batches.launcher.runners


__all__ = ["BatchMethods"]
