"""An app for real workers: what it does is counted."""

from __future__ import annotations

import os

from mainstay import App, context

app = App(os.environ.get("SHOP_STORE", "memory:"), retries=1, backoff_base="1ms")


@app.task(name="shop.pay")
async def pay(n: int) -> int:
    return n


@app.task(name="shop.flaky")
def flaky() -> None:
    if context().attempt == 1:
        raise ConnectionError("again")
