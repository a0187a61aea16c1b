"""A worker in this process: the real engine, on the app's own store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from mainstay import App
from mainstay.worker.engine import Engine


@asynccontextmanager
async def working(app: App, *, lives: bool = True) -> AsyncIterator[Engine]:
    """Runs the app's jobs until the block is left, with its lifespan or without."""
    control = await app.open()
    session = await control.claims.open_session()
    engine = Engine(app, control, session, queues=app.queues, concurrency=4)
    async with app.lifespan() if lives else nullcontext():
        engine.start()
        try:
            yield engine
        finally:
            engine.drain(1.0)
            await engine.stopped.wait()
