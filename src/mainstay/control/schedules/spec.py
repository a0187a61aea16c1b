"""ScheduleSpec: a schedule as it is stored.

Fields that a newer version added are ignored; missing fields get their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from ...errors import InvalidInput
from ...model import Settings
from ..failure import shown
from ..job_factory import JobRequest
from ..options import OptionReader, check_count, check_name
from ..payload import encoded
from .when import StoredWhen, When, when_of

CatchUp = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip"]

CATCH_UP_LIMIT = 100
_MOST_AT_ONCE = 1000
#: the tag `schedule:NAME` must fit
_NAME_LIMIT = 90
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
#: options that make no sense for repeated jobs
_NOT_FOR_SCHEDULES = {
    "run_at": "the schedule says when",
    "key": "every tick is its own job, and its time is its key",
    "key_ttl": "a schedule has no key",
    "on_clash": "a tick submits nothing while a job with the same `unique` key is unsettled",
    "parent": "units belong to their job",
    "unit": "units belong to their job",
}


class ScheduledJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule submits at each of its times."""

    name: str
    payload: bytes
    """before a codec seals it"""
    options: dict[str, Any]


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as data; made by `schedule(...)`."""

    name: str
    when: StoredWhen
    task: str
    payload: bytes = b"\xc0"
    """msgpack"""
    options: dict[str, Any] = {}
    """as `Jobs.submit` takes them"""
    catch_up: CatchUp = "once"
    """what happens to missed ticks: skip them, make up for the newest, or for all of them"""
    catch_up_limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST_AT_ONCE)] = CATCH_UP_LIMIT
    """most ticks turned into jobs at one time; the oldest are skipped"""
    overlap: Overlap = "allow"
    """what a tick does while the job of an earlier one is not settled: submit its own job, or skip"""

    @property
    def tag(self) -> str:
        """Finds the jobs of this schedule; also its unique key."""
        return f"schedule:{self.name}"


def schedule(
    name: str,
    when: str | timedelta | When,
    task: str,
    payload: Any = None,
    *,
    tz: str | ZoneInfo | None = None,
    options: Mapping[str, Any] | None = None,
    catch_up: CatchUp = "once",
    catch_up_limit: int = CATCH_UP_LIMIT,
    overlap: Overlap = "allow",
    settings: Settings | None = None,
) -> ScheduleSpec:
    """Describe a schedule: at these times, submit this task. Everything is checked here.

    >>> schedule("sums", "*/5 * * * *", "report.sums", {"day": "today"}, tz="Europe/Berlin", overlap="skip").when.text
    '*/5 * * * *'
    >>> schedule("sums", "5 minutes", "report.sums")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: cron: '5 minutes' has 2 fields and needs five ...
    """
    settings = settings or Settings()
    check_name(name, field="schedule", limit=_NAME_LIMIT)
    _one_of("catch_up", catch_up, CatchUp)
    _one_of("overlap", overlap, Overlap)
    given = dict(options or {})
    if overlap == "skip" and given.get("unique") is not None:
        raise InvalidInput("overlap", "'skip' already makes the jobs of a schedule unique; leave out `unique`")
    for option, why in _NOT_FOR_SCHEDULES.items():
        if given.get(option) is not None:
            raise InvalidInput(f"options.{option}", f"not for a schedule: {why}")
    data = {option: _as_data(option, value) for option, value in given.items()}
    read = OptionReader(settings).read
    read(data)
    spec = ScheduleSpec(
        name=name,
        when=StoredWhen.of(when_of(when, tz=tz)),
        task=check_name(task, field="task"),
        payload=encoded(payload, field="payload", limit=settings.payload_limit),
        options={option: value for option, value in data.items() if value is not None},
        catch_up=catch_up,
        catch_up_limit=check_count(catch_up_limit, field="catch_up_limit", least=1, most=_MOST_AT_ONCE),
        overlap=overlap,
    )
    # again with the tag and metadata of a tick: one tag too many is refused here
    read(_options_of(spec, _ANY_TIME))
    return spec


def request_of(spec: ScheduleSpec, *, scheduled_for: datetime) -> JobRequest:
    """The job of a tick."""
    return JobRequest(spec.task, msgspec.Raw(spec.payload), _options_of(spec, scheduled_for))


def _options_of(spec: ScheduleSpec, scheduled_for: datetime) -> dict[str, Any]:
    options = dict(spec.options)
    options["tags"] = [*options.get("tags", ()), spec.tag]
    about = {"schedule": spec.name, "scheduled_for": scheduled_for.isoformat()}
    options["metadata"] = {**options.get("metadata", {}), **about}
    if spec.overlap == "skip":
        options["unique"] = spec.tag
    return options


def spec_bytes(spec: ScheduleSpec) -> bytes:
    """The spec as stored; equal specs are equal bytes."""
    return _encode(spec)


def read_spec(data: bytes) -> ScheduleSpec:
    """A stored spec; raises `InvalidInput` if it cannot be read."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        rule = f"the stored schedule cannot be read: {str(error) or type(error).__name__}"
        raise InvalidInput("spec", f"{rule}; register it again, or drop it") from None


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(ScheduleSpec).decode


def _as_data(name: str, value: Any) -> Any:
    """An option in a form that reads back as the same option."""
    match value:
        case timedelta():
            return f"{value / timedelta(milliseconds=1):.0f}ms"
        case datetime():
            raise InvalidInput(f"options.{name}", "a fixed time is not for a schedule; write a duration, like '5m'")
        case set() | frozenset() | tuple():
            return sorted(value) if isinstance(value, set | frozenset) else list(value)
        case Mapping():
            return dict(value)
        case _:
            return value


def _one_of(field: str, value: object, choices: Any) -> None:
    known = choices.__args__
    if value not in known:
        raise InvalidInput(field, f"{shown(value)} is not one of {', '.join(known)}")
