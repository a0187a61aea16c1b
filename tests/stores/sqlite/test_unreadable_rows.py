"""One row with text that is not text does not keep the others from being claimed."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from mainstay.control import Control
from mainstay.errors import RowDamaged
from mainstay.stores import open_store


async def test_a_claim_goes_on_past_a_row_whose_text_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    store = await open_store(f"sqlite:///{path}")
    ids = [(await Control(store).submit("mail.send")).id for _ in range(3)]
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("UPDATE jobs SET name = CAST(x'ff6d61' AS TEXT) WHERE id = ?", (ids[1],))
    db.close()

    store = await open_store(f"sqlite:///{path}")
    control = Control(store)
    session = await control.open_session()
    claimed = await control.claim(["default"], session.id, 10)

    assert [job.id for job in claimed] == [ids[0], ids[2]]
    assert (await store.stats()).aside == 1
    with pytest.raises(RowDamaged, match="mainstay check"):
        await store.get([ids[1]])
    await store.close()
