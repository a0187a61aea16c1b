"""What a job is expected to make, kept with the outputs."""

from __future__ import annotations

import pytest

from mainstay.errors import InvalidInput, OutputCorrupt, OutputMissing, SchemaTooNew
from mainstay.outputs import Manifest, ManifestGroup, OutputStore, Unit, load_manifest, output_path, save_manifest

JOB = "018bcfe5-6800-7000-8000-0123456789ab"


def manifest(sets: int = 3, seeds: int = 2) -> Manifest:
    units = [Unit("sir", "1", {"beta": n / 10, "n": n}, seed) for n in range(sets) for seed in range(seeds)]
    scores = [Unit("sir.score", "1", {"beta": n / 10, "n": n}) for n in range(sets)]
    groups = [
        ManifestGroup.of(units, {"result": "result.npy", "log": "log.txt"}),
        ManifestGroup.of(scores, ["score.json"]),
    ]
    return Manifest(job=JOB, groups=groups)


async def test_a_manifest_reads_back_as_it_was_written(store: OutputStore) -> None:
    made = manifest()

    assert await save_manifest(store, made) == f"v1/_manifests/{JOB}.json.gz"
    assert await load_manifest(store, JOB) == made
    assert [folder async for folder, _ in store.scan()] == []


def test_every_output_of_every_unit_is_named_before_anything_ran() -> None:
    made = manifest()
    found = list(made.expected())

    assert (len(made), len(found)) == (9, 15)
    unit = Unit("sir", "1", {"beta": 0.2, "n": 2}, 1)
    assert (unit, "log", output_path(unit, "log.txt")) in found
    score = Unit("sir.score", "1", {"beta": 0.2, "n": 2})
    assert found[-1] == (score, "score.json", output_path(score, "score.json"))


def test_a_manifest_is_read_by_pages_of_units() -> None:
    made = manifest()
    pages = [made.page(start, 4) for start in range(0, len(made), 4)]

    assert [row for page in pages for row in page] == list(made.expected())
    assert [len({unit for unit, _, _ in page}) for page in pages] == [4, 4, 1]
    assert made.page(9) == []


async def test_a_manifest_that_is_not_there_or_damaged_says_so(memory: OutputStore) -> None:
    with pytest.raises(OutputMissing, match=f"job {JOB} has no output manifest"):
        await load_manifest(memory, JOB)
    path = await save_manifest(memory, manifest())
    (body,) = await memory.blobs.read([path])
    assert isinstance(body, bytes)
    for damaged in (body[:50], body[:100] + b"x" + body[101:], b"", b"text"):
        await memory.blobs.write(path, damaged)
        with pytest.raises(OutputCorrupt, match="manifest"):
            await load_manifest(memory, JOB)


async def test_a_manifest_of_a_newer_mainstay_is_refused(memory: OutputStore) -> None:
    await save_manifest(memory, Manifest(job=JOB, groups=[], schema=2))

    with pytest.raises(SchemaTooNew, match="upgrade"):
        await load_manifest(memory, JOB)


async def test_a_hundred_thousand_units_are_a_few_hundred_kilobytes(memory: OutputStore) -> None:
    pairs = [(row, seed) for row in range(10_000) for seed in range(10)]
    params = [{"beta": row / 1000, "gamma": row / 7, "n": row} for row in range(10_000)]
    group = ManifestGroup(study="sir", code="1", outputs={"result": "result.npy"}, params=params, pairs=pairs)

    path = await save_manifest(memory, Manifest(job=JOB, groups=[group]))

    (body,) = await memory.blobs.read([path])
    assert isinstance(body, bytes)
    assert len(body) < 1_000_000
    assert len(await load_manifest(memory, JOB)) == 100_000


def test_a_group_is_of_one_study_and_not_empty() -> None:
    with pytest.raises(InvalidInput, match="make a group of its own"):
        ManifestGroup.of([Unit("a", "1", {}, 1), Unit("b", "1", {}, 1)], ["x"])
    with pytest.raises(InvalidInput, match="at least one"):
        ManifestGroup.of([], ["x"])
