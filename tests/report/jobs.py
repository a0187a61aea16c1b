"""An app for real workers: what it does is counted."""

from __future__ import annotations

import asyncio
import os

from prometheus_client import Counter

from mainstay import App, context

app = App(os.environ.get("SHOP_STORE", "memory:"), retries=1, backoff_base="1ms")

paid = Counter("shop_paid", "a metric of the shop's own", ["how"])


@app.task(name="shop.pay")
async def pay(n: int) -> int:
    paid.labels("cash").inc()
    return n


@app.task(name="shop.stay_once")
async def stay_once() -> None:
    if context().attempt == 1:
        await asyncio.Event().wait()


@app.task(name="shop.flaky")
def flaky() -> None:
    if context().attempt == 1:
        raise ConnectionError("again")
