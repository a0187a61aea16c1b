"""Data that all users of a process share: results of setups, and values that other workflows provide. It is read-only,
because all users would see a change."""

from __future__ import annotations

from typing import Any, NoReturn


def fixed(data: Any) -> Any:
    """A read-only copy of plain data: its dictionaries and lists, at any depth, refuse changes.

    >>> shop = fixed({"open": True, "carts": [1, 2]})
    >>> shop == {"open": True, "carts": [1, 2]}
    True
    >>> shop["carts"].append(3)
    Traceback (most recent call last):
    TypeError: all users share this data, so it is read-only; change a copy of it
    """
    if isinstance(data, dict):
        return _FixedDict((key, fixed(value)) for key, value in data.items())
    if isinstance(data, list):
        return _FixedList(map(fixed, data))
    return data


def own(data: Any) -> Any:
    """A deep copy of the dictionaries and lists in plain data, which may be changed."""
    if isinstance(data, dict):
        return {key: own(value) for key, value in data.items()}
    if isinstance(data, list):
        return [own(value) for value in data]
    return data


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("all users share this data, so it is read-only; change a copy of it")


class _FixedDict(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, _: Any) -> dict[Any, Any]:
        copied: dict[Any, Any] = own(self)
        return copied


class _FixedList(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, _: Any) -> list[Any]:
        copied: list[Any] = own(self)
        return copied
