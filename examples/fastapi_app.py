"""A slow endpoint in FastAPI: POST answers at once, a worker does the work, GET tells how it stands.

$ mainstay worker fastapi_app:jobs &
$ uvicorn fastapi_app:web --port 8000 &
$ curl -i -X POST localhost:8000/reports -H 'Content-Type: application/json' -d '{"year": 2026}'
"""

from fastapi import FastAPI

from mainstay import App
from mainstay.task.endpoints import AsyncEndpoint

jobs = App("sqlite:///jobs.db")


@jobs.task
async def make_report(year: int) -> dict[str, int]:
    return {"year": year, "pages": 12}


web = FastAPI(routes=AsyncEndpoint(make_report).routes("/reports"))
