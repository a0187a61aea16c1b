"""A node with a slice under load, in a process that a test kills: prints the ids of its generators, and waits."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from mainstay.load.fleet.slice_handler import generators_of
from mainstay.load.target import TargetServer
from tests.load.fleet.slice_nodes import slice_node, slice_world
from tests.load.fleet.test_slice_handler import bundled


async def main(folder: Path) -> None:
    async with TargetServer() as target, slice_world(folder) as world, slice_node(world, scripted=False) as node:
        made: list[Any] = []

        def runner(where: Path | None) -> Any:
            def make(*given: Any, **named: Any) -> Any:
                made.append(generators_of(where)(*given, **named))
                return made[-1]

            return make

        node.handler.runner = runner
        digest, order = await bundled(world, target, duration="60s")
        await world.placed(node, cores=2, code=digest)
        leader = world.commander(0)
        await leader.prepare(order=order, processes=2)
        await leader.go()
        while not target.counts().completed:
            await asyncio.sleep(0.01)
        print(*made[0].pids, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
