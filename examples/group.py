"""A group: many jobs, and one more that runs once when all of them are done.

$ mainstay worker group:app &
$ python group.py
"""

import asyncio

from mainstay import App, context

app = App("sqlite:///jobs.db")


@app.task(name="word_count")
async def word_count(text: str) -> int:
    return len(text.split())


@app.task(name="total")
async def total() -> int:
    return sum(part.result for part in await context().inputs())


async def main() -> None:
    async with app:
        pages = ["one two three", "four five", "six"]
        group = await app.group([word_count.job(page) for page in pages], then=total.job())
        print(await group.then.result(timeout="60s"), "words")


if __name__ == "__main__":
    asyncio.run(main())
