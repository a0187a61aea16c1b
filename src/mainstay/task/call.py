"""A call to be made by a worker: `task.job(...)`."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from ..control import Plan, Request
from ..errors import InvalidInput
from .client import Client
from .drafts import Draft, drafted
from .returns import Returns
from .running import running
from .signature import Signature

R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """One call, checked and packed, not submitted yet. For `app.submit_many`, `app.group`, `app.schedule` and
    `context().submit`."""

    __slots__ = ("_plan", "_request", "_signature", "client", "options", "payload", "returns")

    def __init__(
        self,
        client: Client,
        signature: Signature,
        returns: Returns[R_co],
        payload: bytes,
        options: dict[str, Any],
        plan: Plan,
    ) -> None:
        self.client = client
        self.returns = returns
        self._signature = signature
        self.payload = payload
        """the arguments as they are stored, before a codec sees them"""
        self.options = options
        self._plan = plan
        self._request: Request | None = None

    @property
    def name(self) -> str:
        """The task."""
        return self._signature.name

    @property
    def request(self) -> Request:
        """What control is given; made once, with the hooks asked and the payload sealed."""
        if self._request is None:
            self._request = self.new_request()
        return self._request

    def new_request(self) -> Request:
        """The same, made anew: for a call that is submitted again and again."""
        client, name, payload, plan = self.client, self._signature.name, self.payload, self._plan
        if client.before_submit:
            arguments = self._signature.given(payload)
            draft = Draft(name=name, arguments=arguments, options=dict(self.options))
            plan = client.reader.read(drafted(client.before_submit, draft).options)
        if client.sealer.seals:
            return Request(name, msgspec.Raw(client.sealer.seal(payload)), plan, payload)
        return Request(name, msgspec.Raw(payload), plan)

    def followup(self) -> Request:
        """What control is given when a running job submits it with its own success. Raises `InvalidInput` for what
        could never be stored that way, where it is written and not when the job has done its work."""
        here = running()
        if here is not None and here is not self.client:
            raise InvalidInput(
                "submit",
                f"{self!r} belongs to another app, whose workers would not find it in this store; submit it there: "
                "await task.submit(...)",
            )
        request = self.request
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
