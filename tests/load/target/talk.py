"""A client of few words: sends bytes, and reads one answer of HTTP/1.1 at a time."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import msgspec

from mainstay.load.target import TargetServer


class Talk:
    def __init__(self, target: TargetServer, *, tls: Any = None) -> None:
        self._target = target
        self._tls = tls

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._target.port, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def hear(self, *, bodiless: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if line)
        if bodiless:
            body = b""
        elif headers.get("transfer-encoding") == "chunked":
            body = await self._chunks()
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, body

    async def get(self, path: str, *lines: str) -> tuple[int, dict[str, str], bytes]:
        self.say("\r\n".join((f"GET {path} HTTP/1.1", "Host: x", *lines, "", "")).encode())
        return await self.hear()

    async def json(self, path: str, *lines: str) -> Any:
        _, _, body = await self.get(path, *lines)
        return msgspec.json.decode(body)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()
        return body
