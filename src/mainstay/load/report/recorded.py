"""Reads finished runs from files: a recorded stream, or a summary in JSON. Every report can be made from either; a
stream also has the histogram of each step."""

from __future__ import annotations

from pathlib import Path

from ...errors import InvalidInput
from ..stats.histogram import Histogram
from ..stats.model import Sketch
from ..stats.sums import WindowSum
from ..stats.tally import from_json
from ..stream import RecordedStream, remade
from .compare import Histograms, Run, as_run

_ZSTD = b"\x28\xb5\x2f\xfd"
#: bytes that tell the kind of a file
_HEAD = 64


def read_result(path: str | Path) -> Run:
    """Read a run from `.ndjson`, `.ndjson.zst` or the file of `--json`. The content decides, not the name."""
    place = Path(path)
    head = _read(place, _HEAD)
    if head.startswith(_ZSTD) or head.replace(b" ", b"").startswith(b'{"type":"run"'):
        return _from_stream(place)
    try:
        return as_run(from_json(_read(place)))
    except InvalidInput as error:
        raise InvalidInput(
            "result", f"{str(place)!r} is neither a recorded stream nor a JSON summary: {error.rule}"
        ) from None


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InvalidInput("result", f"{str(path)!r} cannot be read: {error.strerror}") from None


def _from_stream(path: Path) -> Run:
    recorded = RecordedStream(path)
    total = WindowSum()
    for window in recorded.windows():
        total.add(window)
    service: Histograms = {}
    response: Histograms = {}
    steps = total.window().steps
    for step in steps:
        key = f"{step.workflow}.{step.step}"
        _keep(service, key, step.ok, step.failed)
        _keep(response, key, step.response)
    summary = remade(path)
    if summary.distribution:
        service[""] = list(summary.distribution)
    _keep(response, "", *(step.response for step in steps))
    return Run(summary=summary, service=service, response=response, steps=steps, note=recorded.torn)


def _keep(known: Histograms, key: str, *sketches: Sketch | None) -> None:
    buckets = Histogram(one for one in sketches if one is not None).buckets()
    if buckets:
        known[key] = buckets
