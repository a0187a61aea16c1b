"""A schedule: the workers' leader submits the task every second. Each tick makes exactly one job.

$ mainstay worker schedule:app &
$ python schedule.py
"""

import asyncio

from mainstay import App
from mainstay.stores import Query

app = App("sqlite:///jobs.db")


@app.schedule("1s")
@app.task(name="tidy_up")
def tidy_up() -> str:
    return "tidy"


async def main() -> None:
    async with app:
        while not (jobs := (await app.control.store.find(Query(name=tidy_up.name))).jobs):
            await asyncio.sleep(0.1)
        tick = app.handle(jobs[0].id)
        print(tick.id, await tick.result(timeout="60s"))


if __name__ == "__main__":
    asyncio.run(main())
