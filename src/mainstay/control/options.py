"""Submit options: from what users write to what is stored. Pure; an error names the field.

>>> reader = OptionReader(Settings())
>>> reader.read({"queue": "mail", "timeout": "30s"}).options.run_timeout_s
30.0
>>> reader.read({"retrys": 3})
Traceback (most recent call last):
mainstay.errors.UnknownOption: retrys: unknown option; did you mean 'retries'?
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from ..clock import LONGEST_S, instant_ms, seconds
from ..errors import InvalidInput, UnknownOption
from ..kinds import DEFAULT as DEFAULT_KIND, is_kind, kind_named, kind_names
from ..model import Options, RetryPolicy, Settings, check_id
from ..stores import LEVELS, Durability
from .failure import storable

_NAME = re.compile(r"\w[\w.:/\-]*")
_NAME_LIMIT = 200
_QUEUE_LIMIT = 100
_KEY_LIMIT = 255
_MANY = 50
_CACHED = 1024

#: a limit above every real count, and well within the integers of every engine
LARGEST_NUMBER = 1_000_000_000

#: most jobs that one job can wait for
MOST_AWAITED = 10_000

OnClash = Literal["return", "refuse", "replace"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Options that were read once, for any number of jobs."""

    options: Options
    queue: str = "default"
    priority: int = 0
    delay_ms: int = 0
    run_at_ms: int | None = None
    start_within_ms: int | None = None
    """queue deadline as a duration, counted from the time the job is due"""
    key: str | None = None
    key_ttl_ms: int = 0
    unique: str | Literal[True] | None = None
    """True: by content"""
    on_clash: OnClash = "return"
    concurrency_key: str | None = None
    kind: str = "task"
    parent: str | None = None
    unit: str | None = None
    group: str | None = None
    after: tuple[str, ...] = ()
    """ids of the jobs it waits for"""
    ranked_at_submit: bool = False
    """its place in the queue counts from its submit, although it is due later"""
    durability: Durability | None = None
    """what the job survives when the submit returns; None: as the store's URL says"""


class OptionReader:
    """Reads options against the defaults of the settings. Equal policies share one `Options` object."""

    def __init__(self, settings: Settings) -> None:
        self._key_ttl_ms = round(settings.key_ttl_s * 1000)
        self._defaults: dict[str, Any] = {
            "retries": settings.retries,
            "backoff": "exponential",
            "backoff_base": settings.backoff_base_s,
            "backoff_cap": settings.backoff_cap_s,
            "jitter": settings.jitter,
            "crash_budget": settings.crash_budget,
            "timeout": settings.run_timeout_s,
            "stall_timeout": settings.stall_timeout_s,
            "on_stall": "retry",
            "grace": settings.grace_s,
            "start_by": None,
            "keep": None,
            "tags": (),
            "metadata": (),
            "after_when": None,
            "after_failed": None,
        }
        self._cache: dict[tuple[Any, ...], Options] = {}
        self.plain = Plan(options=self._options({}), key_ttl_ms=self._key_ttl_ms)
        """the plan without options"""

    def read(self, given: Mapping[str, Any]) -> Plan:
        """Read and validate the options of one submit. None leaves an option at its default."""
        if not given:
            return self.plain
        policy: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in given.items():
            reader = _READERS.get(name)
            if reader is None:
                raise UnknownOption(name, _READERS)
            if value is None and name not in _NO_NONE:
                continue
            checked = reader(name, value)
            if name in self._defaults:
                policy[name] = checked
            elif name == "queue_deadline":
                (policy if "start_by" in checked else rest).update(checked)
            else:
                rest[_FIELDS.get(name, name)] = checked
        if "delay_ms" in rest and "run_at_ms" in rest:
            raise InvalidInput("delay", "give either delay or run_at, not both")
        if "on_clash" in rest and "unique" not in rest:
            raise InvalidInput("on_clash", "needs `unique`: it says what to do about a clash of unique keys")
        if "key_ttl_ms" in rest and "key" not in rest:
            raise InvalidInput("key_ttl", "needs `key`: it says how long the key is remembered")
        if "on_stall" in policy and policy.get("stall_timeout", self._defaults["stall_timeout"]) is None:
            raise InvalidInput("on_stall", "needs `stall_timeout`: it says what to do then")
        if (rest.get("parent") is None) != (rest.get("unit") is None):
            raise InvalidInput("unit", "a unit needs both `parent` and `unit`")
        _check_after(given, policy, rest)
        _put_in_reserved_queue(rest)
        rest.setdefault("key_ttl_ms", self._key_ttl_ms)
        return Plan(options=self._options(policy), **rest)

    def _options(self, policy: dict[str, Any]) -> Options:
        values = {**self._defaults, **policy}
        cache_key = tuple(values.values())
        cached = self._cache.get(cache_key)
        if cached is not None:
            return cached
        options = Options(
            retry=RetryPolicy(
                retries=values["retries"],
                kind=values["backoff"],
                base_s=values["backoff_base"],
                cap_s=values["backoff_cap"],
                jitter=values["jitter"],
                crash_budget=values["crash_budget"],
            ),
            run_timeout_s=values["timeout"],
            stall_timeout_s=values["stall_timeout"],
            on_stall=values["on_stall"],
            grace_s=values["grace"],
            start_by_ms=values["start_by"],
            keep_s=values["keep"],
            tags=values["tags"],
            metadata=dict(values["metadata"]),
            after_when=values["after_when"],
            after_failed=values["after_failed"],
        )
        if len(self._cache) >= _CACHED:
            self._cache.clear()
        self._cache[cache_key] = options
        return options


def _put_in_reserved_queue(rest: dict[str, Any]) -> None:
    """Jobs of some kinds stand in a queue of that kind alone: a leader assigns them, and no worker claims them."""
    kind = kind_named(rest["kind"]) if rest.get("kind", DEFAULT_KIND) != DEFAULT_KIND else None
    if kind is None or not kind.queue:
        return
    if "queue" in rest:
        raise InvalidInput("queue", f"jobs of kind {kind.name!r} have no queue of their own; leave it out")
    rest["queue"] = kind.queue


def _check_after(given: Mapping[str, Any], policy: dict[str, Any], rest: dict[str, Any]) -> None:
    """Check the options about waiting for other jobs against each other."""
    if given.get("after") is None:
        for name in ("after_when", "after_failed"):
            if name in policy:
                raise InvalidInput(name, "needs `after`: it says how to wait for those jobs")
        return
    if rest.get("parent") is not None:
        raise InvalidInput("after", "a unit cannot wait for other jobs; submit it when they have settled")
    if policy.get("after_when") == "settled" and "after_failed" in policy:
        raise InvalidInput("after_failed", "has no effect with after_when='settled', which accepts every end")
    if not rest["after"]:
        # nothing to wait for: the job is ready at once
        policy.pop("after_when", None)
        policy.pop("after_failed", None)
        return
    policy.setdefault("after_when", "succeeded")
    if policy["after_when"] == "succeeded":
        policy.setdefault("after_failed", "skip")


def check_name(name: Any, *, field: str = "name", limit: int = _NAME_LIMIT) -> str:
    """Check the name of a task or queue: letters, digits, `_ . : / -`."""
    if not isinstance(name, str):
        raise InvalidInput(field, f"must be text, not {type(name).__name__}")
    if not name or len(name) > limit:
        raise InvalidInput(field, f"must have 1 to {limit} characters, not {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            field, f"{name!r} may only contain letters, digits and _ . : / -, and must start with a letter or digit"
        )
    return name


def check_queue(name: Any, *, field: str = "queue") -> str:
    return check_name(name, field=field, limit=_QUEUE_LIMIT)


def check_text(value: Any, *, field: str, limit: int = _KEY_LIMIT) -> str:
    """Check free text that is stored and shown: printable, not empty, within the limit."""
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    if not value.strip() or len(value) > limit:
        raise InvalidInput(field, f"must have 1 to {limit} characters, not {len(value.strip()) or 'only blanks'}")
    if not value.isprintable():
        raise InvalidInput(field, f"{value!r} contains characters that cannot be printed")
    return value


def check_priority(value: Any, *, field: str = "priority") -> int:
    return _whole(field, value, -100, 100)


def check_count(value: Any, *, field: str, least: int = 0, most: int = LARGEST_NUMBER) -> int:
    """Check a count."""
    return _whole(field, value, least, most)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(name, f"{value!r} is not a whole number")
    if not least <= value <= most:
        raise InvalidInput(name, f"{value} is out of range; it must be from {least} to {most}")
    return value


def _count(least: int, most: int) -> Callable[[str, Any], int]:
    return lambda name, value: _whole(name, value, least, most)


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise InvalidInput(name, f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    return read


def _duration(name: str, value: Any) -> float:
    return seconds(value, field=name)


def _limit(name: str, value: Any) -> float | None:
    """A duration above zero, or "off"."""
    if value is None:
        raise InvalidInput(name, "None is ambiguous; write 'off' for no limit, or leave it out")
    if isinstance(value, str) and value.strip().lower() == "off":
        return None
    limit_s = seconds(value, field=name)
    if limit_s <= 0:
        raise InvalidInput(name, f"{value!r} must be longer than zero; write 'off' for no limit")
    return limit_s


def _positive(name: str, value: Any) -> float:
    duration_s = seconds(value, field=name)
    if duration_s <= 0:
        raise InvalidInput(name, f"{value!r} must be longer than zero")
    return duration_s


def _millis(name: str, value: Any) -> int:
    return round(seconds(value, field=name) * 1000)


def _ttl(name: str, value: Any) -> int:
    return round(_positive(name, value) * 1000)


def _keep(name: str, value: Any) -> float:
    """A duration above zero, or "off" for the longest duration there is."""
    if isinstance(value, str) and value.strip().lower() == "off":
        return LONGEST_S
    return _positive(name, value)


def _instant(name: str, value: Any) -> int:
    if not isinstance(value, datetime):
        raise InvalidInput(name, f"{value!r} is not a datetime; pass an aware datetime, or use delay")
    return instant_ms(value, field=name)


def _deadline(name: str, value: Any) -> dict[str, int]:
    """A queue deadline, by the field that stores it: a point in time, or a duration."""
    if isinstance(value, datetime):
        return {"start_by": instant_ms(value, field=name)}
    if isinstance(value, str | timedelta):
        return {"start_within_ms": _ttl(name, value)}
    raise InvalidInput(name, f"{value!r} is neither a duration like '5m' nor an aware datetime")


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(name, f"{value!r} is neither True nor False")
    return value


def _text(name: str, value: Any) -> str:
    return check_text(value, field=name)


def _unique(name: str, value: Any) -> str | Literal[True]:
    if value is True:
        return True
    if not isinstance(value, str):
        raise InvalidInput(name, f"{value!r} is neither a key (text) nor True (one unsettled job with these arguments)")
    return check_text(value, field=name)


def _queue(name: str, value: Any) -> str:
    return check_queue(value, field=name)


def _id(name: str, value: Any) -> str:
    return check_id(value, field=name)


def _after(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise InvalidInput(name, f"{value!r} is not a list of job ids")
    ids = tuple(dict.fromkeys(check_id(each, field=f"{name}[{index}]") for index, each in enumerate(value)))
    if len(ids) > MOST_AWAITED:
        raise InvalidInput(name, f"{len(ids)} jobs are more than the limit of {MOST_AWAITED}")
    return ids


def _tags(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
        raise InvalidInput(name, f"{value!r} is not a list of texts")
    if len(value) > _MANY:
        raise InvalidInput(name, f"{len(value)} are more than the limit of {_MANY}")
    tags = [check_text(tag, field=f"{name}[{index}]", limit=100) for index, tag in enumerate(value)]
    return tuple(dict.fromkeys(sorted(tags) if isinstance(value, set | frozenset) else tags))


def _metadata(name: str, value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise InvalidInput(name, f"{value!r} is not a mapping of text to text")
    if len(value) > _MANY:
        raise InvalidInput(name, f"{len(value)} entries are more than the limit of {_MANY}")
    entries = []
    for key, text in value.items():
        check_text(key, field=f"{name} key", limit=100)
        if not isinstance(text, str) or len(text) > 1000 or not storable(text):
            raise InvalidInput(f"{name}.{key}", "must be text of at most 1000 characters")
        entries.append((key, text))
    return tuple(sorted(entries))


def _kind(name: str, value: Any) -> str:
    if not isinstance(value, str) or not is_kind(value):
        raise InvalidInput(name, f"{value!r} is not one of {', '.join(kind_names())}")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "queue": _queue,
    "priority": _count(-100, 100),
    "delay": _millis,
    "run_at": _instant,
    "retries": _count(0, 1_000_000),
    "backoff": _one_of("exponential", "linear", "fixed"),
    "backoff_base": _duration,
    "backoff_cap": _duration,
    "jitter": _switch,
    "crash_budget": _count(1, 1000),
    "timeout": _limit,
    "queue_deadline": _deadline,
    "stall_timeout": _limit,
    "on_stall": _one_of("retry", "hold"),
    "grace": _duration,
    "key": _text,
    "key_ttl": _ttl,
    "unique": _unique,
    "on_clash": _one_of("return", "refuse", "replace"),
    "concurrency_key": _text,
    "tags": _tags,
    "metadata": _metadata,
    "keep": _keep,
    "kind": _kind,
    "parent": _id,
    "unit": _text,
    "group": _text,
    "after": _after,
    "after_when": _one_of("succeeded", "settled"),
    "after_failed": _one_of("skip", "fail"),
    "durability": _one_of(*LEVELS),
}
_FIELDS = {"delay": "delay_ms", "run_at": "run_at_ms", "key_ttl": "key_ttl_ms"}
_NO_NONE = frozenset({"timeout", "stall_timeout"})

OPTION_NAMES = tuple(_READERS)
