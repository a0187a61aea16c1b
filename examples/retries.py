"""Retries: a task that fails twice and succeeds at the third attempt. The job's history names every attempt.

$ mainstay worker retries:app &
$ python retries.py
"""

import asyncio

from mainstay import App, context

app = App("sqlite:///jobs.db")


@app.task(name="charge", retries=3, backoff_base="100ms")
async def charge(card: str) -> str:
    attempt = context().attempt
    if attempt < 3:
        raise ConnectionError(f"the bank did not answer (attempt {attempt})")
    return f"charged {card} at attempt {attempt}"


async def main() -> None:
    async with app:
        job = await charge.submit("4242")
        print(await job.result(timeout="60s"))
        print(*await job.story(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
