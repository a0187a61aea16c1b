"""The result of a task: how it is stored and read back."""

from __future__ import annotations

import inspect
from typing import Any, Generic, TypeVar, cast

import msgspec

from ..errors import BadResult, InvalidInput
from .codec import Sealer
from .storable import UNSTORABLE, canonical
from .type_errors import error_text, place_and_rule

R = TypeVar("R")


class Returns(Generic[R]):
    """Results of one declared type."""

    def __init__(self, name: str, kind: Any, sealer: Sealer) -> None:
        self._name = name
        self._sealer = sealer
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def pack(self, value: Any) -> msgspec.Raw | None:
        """A result as it is stored; raises `BadResult` if it is not of the declared type, or cannot be sealed."""
        try:
            data = canonical(value)
            self._decode(data)
        except msgspec.ValidationError as error:
            place, rule = place_and_rule(str(error))
            raise BadResult(f"{self._name} returned{' ' + place if place else ''}", rule) from None
        except UNSTORABLE as error:
            raise BadResult(f"{self._name} returned", _refusal(value, error)) from None
        try:
            return None if value is None else msgspec.Raw(self._sealer.seal(data))
        except InvalidInput as error:
            raise BadResult(error.field, error.rule) from error.__cause__

    def unpack(self, data: bytes | None, *, job_id: str) -> R:
        """A stored result in the declared type."""
        if data is None:
            return cast("R", None)
        opened = self._sealer.open(data, field=f"the result of job {job_id}")
        try:
            return cast("R", self._decode(opened))
        except msgspec.ValidationError as error:
            place, rule = place_and_rule(str(error))
            where = f" ({place})" if place else ""
            raise InvalidInput(
                f"the result of job {job_id}{where}",
                f"{rule}; {self._name} has another return type since then",
            ) from None
        except UNSTORABLE as error:
            raise InvalidInput(f"the result of job {job_id}", f"cannot be read: {error_text(error)}") from None


def _refusal(value: Any, error: Exception) -> str:
    if inspect.iscoroutine(value):
        value.close()
        return "a coroutine, but is not an `async def` (a decorator may hide that); make both of them async"
    return f"data that cannot be stored: {error_text(error)}"
