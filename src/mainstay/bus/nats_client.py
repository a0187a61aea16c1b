"""The client of nats-py, made to reconnect whatever its server says.

By itself it closes, without another try, on most errors that a server reports: for example if its CONNECT arrived too
late, as over a wire that was cut in one direction. An unexpected error of the transport ends its tries, too. Both would
cut a node off until its programs are started again.
"""

from __future__ import annotations

import asyncio

from nats.aio.client import Client
from nats.errors import Error

_PERMISSIONS = "permissions violation"


class PersistentClient(Client):
    """Only `close` ends it."""

    async def _process_err(self, err_msg: str) -> None:
        if _PERMISSIONS in err_msg.lower():  # about one message or subscription: the connection stays
            await super()._process_err(err_msg)
            return
        error = Error(f"nats: {err_msg.strip(chr(39))}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _attempt_reconnect(self) -> None:
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 - whatever failed, the server may be back
                await self._error_cb(error)
            else:
                return
            await asyncio.sleep(self.options["reconnect_time_wait"])


__all__ = ["PersistentClient"]
