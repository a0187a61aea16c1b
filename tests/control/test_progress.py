"""Progress and checkpoints: what a worker says must be readable when the job is claimed again."""

from __future__ import annotations

from typing import Any

import pytest

from mainstay.control import Control
from mainstay.errors import InvalidInput, PayloadTooLarge
from mainstay.model import Progress, Settings

from .conftest import Bench


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"done": float("nan")}, "progress.done"),
        ({"done": float("inf")}, "progress.done"),
        ({"done": "abc"}, "progress.done"),
        ({"done": True}, "progress.done"),
        ({"done": 10**400}, "progress.done"),
        ({"done": 1, "total": float("-inf")}, "progress.total"),
        ({"done": 1, "message": 7}, "progress.message"),
        ({"done": 1, "message": "file \udcff"}, "progress.message"),
        ({"done": 1, "message": "x" * 1001}, "progress.message"),
    ],
)
async def test_progress_that_could_not_be_read_back_is_refused_by_name(
    bench: Bench, said: dict[str, Any], field: str
) -> None:
    job = await bench.running()

    with pytest.raises(InvalidInput) as refused:
        bench.worker.progress(job, **said)
    assert refused.value.field == field
    with pytest.raises(InvalidInput):
        await bench.worker.extend(job, progress=Progress(**said))

    assert (await bench.control.get(job.id)).progress is None


async def test_a_checkpoint_is_bounded_like_a_payload(bench: Bench) -> None:
    job = await bench.running()
    control = Control(bench.store, settings=Settings(payload_limit=10))

    with pytest.raises(PayloadTooLarge, match="checkpoint: 11 bytes are more than the limit of 10"):
        control.progress(job, 1, checkpoint=b"x" * 11)
    with pytest.raises(InvalidInput, match="checkpoint: must be bytes, not str"):
        control.progress(job, 1, checkpoint="text")  # type: ignore[arg-type]

    assert await control.report([control.progress(job, 1, 2, "half\nway", checkpoint=b"x" * 10)]) == [True]
    row = await bench.control.get(job.id)
    assert (row.progress, row.checkpoint) == (Progress(done=1, total=2, message="half\nway"), b"x" * 10)
