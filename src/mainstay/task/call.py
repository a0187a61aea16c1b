"""A call to be made by a worker: `task.job(...)`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ..control import JobRequest, Plan
from ..errors import InvalidInput
from .client import Client
from .current_client import running
from .drafts import Draft, drafted
from .returns import Returns
from .signature import Signature

R_co = TypeVar("R_co", covariant=True)


class Call(JobRequest, Generic[R_co], frozen=True, eq=False, kw_only=True):
    """One call, checked and packed, not submitted yet. For `app.submit_many`, `app.group`, `app.schedule` and
    `context().submit`.

    It is what control takes, unless the app has hooks or a codec: they are asked when the call is submitted.
    """

    client: Client
    signature: Signature
    returns: Returns[R_co]
    written: dict[str, Any]
    """the options as they were written"""
    prepared: Call[R_co] | None = None

    def ready(self) -> Call[R_co]:
        """The call with the hooks asked and the payload sealed; made once."""
        client = self.client
        if not client.before_submit and not client.sealer.seals:
            return self
        prepared = self.prepared
        if prepared is None:
            payload, plan = bytes(self.payload), self.options
            if client.before_submit:
                draft = Draft(name=self.name, arguments=self.signature.given(payload), options=dict(self.written))
                plan = client.reader.read(drafted(client.before_submit, draft).options)
            sealed = msgspec.Raw(client.sealer.seal(payload))
            content = payload if client.sealer.seals else None
            prepared = msgspec.structs.replace(self, payload=sealed, options=plan, content=content)
            msgspec.structs.force_setattr(self, "prepared", prepared)
        return prepared

    def followup(self) -> Call[R_co]:
        """What control is given when a running job submits it with its own success. Raises `InvalidInput` for what
        could never be stored that way, where it is written and not when the job has done its work."""
        here = running()
        if here is not None and here is not self.client:
            raise InvalidInput(
                "submit",
                f"{self!r} belongs to another app, whose workers would not find it in this store; submit it there: "
                "await task.submit(...)",
            )
        request = self.ready()
        plan = request.options
        if isinstance(plan, Plan) and plan.durability is not None:
            raise InvalidInput(
                "submit",
                f"{self!r} has a durability of its own, and is stored with the success of the job that submits it; "
                "await task.submit(...) instead, or put durability into the store's URL",
            )
        if isinstance(plan, Plan) and plan.on_clash == "replace":
            raise InvalidInput(
                "submit",
                f"{self!r} has on_clash='replace', which takes a write of its own; await task.submit(...) instead, or "
                "have another on_clash",
            )
        return request

    def __repr__(self) -> str:
        return f"<call of {self.name}>"
