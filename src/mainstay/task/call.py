"""A call that a worker is to make: `task.job(...)`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ..control import JobRequest, Plan
from ..errors import InvalidInput
from .client import AppClient
from .current_client import running
from .drafts import Draft, drafted
from .returns import Returns
from .signature import Signature

R_co = TypeVar("R_co", covariant=True)


class Call(JobRequest, Generic[R_co], frozen=True, eq=False, kw_only=True):
    """One call, checked and packed, but not submitted yet. For `app.submit_many`, `app.group`, `app.schedule` and
    `context().submit`.

    It is a request for control. If the app has hooks or a codec, `ready` applies them when the call is submitted.
    """

    client: AppClient
    signature: Signature
    returns: Returns[R_co]
    written: dict[str, Any]
    """the options as the user wrote them"""
    prepared: Call[R_co] | None = None

    def ready(self) -> Call[R_co]:
        """The call after the hooks, with the payload sealed; computed once."""
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
        """The request, if a running job can submit it with its own success. Raises `InvalidInput` otherwise: here,
        and not when the job has done its work."""
        client = running()
        if client is not None and client is not self.client:
            raise InvalidInput(
                "submit",
                f"{self!r} belongs to another app, whose workers do not look into this store; submit it with "
                "await task.submit(...)",
            )
        request = self.ready()
        plan = request.options
        if isinstance(plan, Plan) and plan.durability is not None:
            raise InvalidInput(
                "submit",
                f"{self!r} has its own durability, but it is stored with the success of the job that submits it; "
                "await task.submit(...) instead, or put durability into the store's URL",
            )
        if isinstance(plan, Plan) and plan.on_clash == "replace":
            raise InvalidInput(
                "submit",
                f"{self!r} has on_clash='replace', which needs its own write; await task.submit(...) instead, or use "
                "another on_clash",
            )
        return request

    def __repr__(self) -> str:
        return f"<call of {self.name}>"
