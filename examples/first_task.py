"""A first task: declare it, submit it, read its result.

$ mainstay worker first_task:app &
$ python first_task.py
"""

from mainstay import App

app = App("sqlite:///jobs.db")


@app.task(name="greet")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.submit_sync("Ann")
    print(job.result_sync(timeout="60s"))
