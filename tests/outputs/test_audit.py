"""All that is there is checked by what its entries say."""

from __future__ import annotations

from mainstay.outputs import OutputStore, Unit, audit, output_path, unit_folder

UNITS = [Unit("sir", "1", {"n": n}, 1) for n in range(6)]


async def test_an_audit_finds_exactly_what_is_wrong(store: OutputStore) -> None:
    for unit in UNITS:
        await store.publish(unit, {"result": b"0123456789", "log": b"fine"})
    await store.publish(Unit("seir", "1", {}, 1), {"only": b"x"})
    clean = await audit(store)
    assert (clean.units, clean.files, clean.bytes, clean.unfinished, clean.bad) == (7, 13, 85, 0, [])

    await store.blobs.delete([output_path(UNITS[0], "log")])
    await store.blobs.write(output_path(UNITS[1], "result"), b"01234")
    await store.blobs.write(output_path(UNITS[2], "result"), b"012345678X")
    (files,) = await store.blobs.find([unit_folder(UNITS[3])])
    (entry,) = [name for name in files if str(name).startswith("_entry")]  # type: ignore[union-attr]  # it is there and readable
    await store.blobs.write(f"{unit_folder(UNITS[3])}/{entry}", b"{}")
    await store.blobs.write(output_path(Unit("sir", "1", {"n": 9}, 1), "result"), b"stopped")

    quick = await audit(store, "sir", verify="size")
    deep = await audit(store, "sir")

    assert {bad.path: bad.state for bad in quick.bad} == {
        output_path(UNITS[0], "log"): "missing",
        output_path(UNITS[1], "result"): "corrupt",
        unit_folder(UNITS[3]): "corrupt",
    }
    assert {bad.path for bad in deep.bad} == {bad.path for bad in quick.bad} | {output_path(UNITS[2], "result")}
    assert (deep.units, deep.unfinished) == (6, 1)
    assert (await audit(store, "seir")).bad == []
