"""The API from another program: `Client` and `AsyncClient`. Needs the extra `mainstay[client]`, and no store.

`calls` and `core` declare the requests and read the responses, `exchange` decides about retries, `resumable_stream`
resumes broken streams; none of them sends anything. `async_*` sends; `sync_*` is generated from it by
`make generate`.

>>> import asyncio, httpx
>>> from mainstay.web.options import WebOptions
>>> from mainstay.web.stores import ServedStores
>>> from mainstay.web.site import make_site
>>> async def main():
...     async with await ServedStores.open({"main": "memory:"}) as stores:
...         here = httpx.ASGITransport(make_site(stores, WebOptions(), tokens=None))
...         async with AsyncClient("http://127.0.0.1:8330", transport=here) as client:
...             job = await client.submit("mail.send", {"to": "a@b.c"}, queue="mail", retries=5)
...             return await job.status(), [found.name async for found in client.jobs.find(queue="mail")]
>>> asyncio.run(main())
('pending', ['mail.send'])
"""

from __future__ import annotations

from ..batch.web import BatchStatusView, ResumeResult
from ..control import EventView, JobView, StatsView
from ..node import NodeJobOverview, NodeList
from ..web.api import BulkResult, JobPage, ScheduleInfo, StoreInfo, WorkingSession
from ..web.live import EndMessage, JobMessage, ListMessage, ProgressMessage, TroubleMessage
from .async_client import AsyncClient
from .async_handle import AsyncJobGroup, AsyncJobHandle
from .exchange import Tries
from .submit_request import SubmitRequest
from .sync_client import Client
from .sync_handle import JobGroup, JobHandle

__all__ = [
    "AsyncClient",
    "AsyncJobGroup",
    "AsyncJobHandle",
    "BatchStatusView",
    "BulkResult",
    "Client",
    "EndMessage",
    "EventView",
    "JobGroup",
    "JobHandle",
    "JobMessage",
    "JobPage",
    "JobView",
    "ListMessage",
    "NodeJobOverview",
    "NodeList",
    "ProgressMessage",
    "ResumeResult",
    "ScheduleInfo",
    "StatsView",
    "StoreInfo",
    "SubmitRequest",
    "Tries",
    "TroubleMessage",
    "WorkingSession",
]
