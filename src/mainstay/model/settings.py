"""Settings: every default of the system in one typed object.

Each is an argument of `App` and an environment variable (`MAINSTAY_` + the name in capitals).

>>> Settings.from_env({"MAINSTAY_LEASE": "20s"}).lease_s
20.0
"""

from __future__ import annotations

from collections.abc import Mapping, Set as AbstractSet
from typing import Annotated, Any, get_args, get_type_hints

import msgspec

from ..clock import duration_text, seconds
from ..errors import InvalidInput, UnknownOption

PREFIX = "MAINSTAY_"
#: environment variables that share the prefix but are not settings
NOT_SETTINGS = frozenset(
    {
        "MAINSTAY_STORE",
        "MAINSTAY_OUTPUTS",
        "MAINSTAY_APP",
        "MAINSTAY_AUDIT_KEY",
        "MAINSTAY_METRICS",
        "MAINSTAY_STATE",
        "MAINSTAY_URL",
        "MAINSTAY_TOKEN",
        "MAINSTAY_NODE_STORE",
        "MAINSTAY_TOKENS",
        "MAINSTAY_SESSION_KEY",
    }
)

#: the variables of a cluster, which `mainstay.cluster` reads
CLUSTER_PREFIX = "MAINSTAY_CLUSTER_"

_Doc = msgspec.Meta


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All defaults. Durations are stored in seconds (`_s`) and given with a unit (`lease="8s"`)."""

    heartbeat_s: Annotated[float, _Doc(gt=0, description="interval of the heartbeats of a worker")] = 2.0
    lease_s: Annotated[float, _Doc(gt=0, description="a session without a heartbeat for longer is dead")] = 8.0
    sweep_s: Annotated[
        float, _Doc(gt=0, description="how often each worker looks for dead sessions and overdue jobs")
    ] = 1.0
    poll_s: Annotated[float, _Doc(gt=0, description="how long an idle worker waits for a wake before it polls")] = 1.0
    retries: Annotated[int, _Doc(ge=0, le=1_000_000, description="attempts after the first")] = 3
    backoff_base_s: Annotated[float, _Doc(ge=0, description="wait before the first retry; doubles each time")] = 2.0
    backoff_cap_s: Annotated[float, _Doc(ge=0, description="longest wait between retries")] = 600.0
    jitter: Annotated[bool, _Doc(description="draw the wait at random between zero and the full backoff")] = True
    crash_budget: Annotated[
        int, _Doc(ge=1, le=1000, description="how often a job may crash its process before quarantine")
    ] = 3
    run_timeout_s: Annotated[float, _Doc(gt=0, description="longest run of one attempt; 'off' for none")] | None = (
        3600.0
    )
    stall_timeout_s: Annotated[float, _Doc(gt=0, description="longest run without progress; 'off' for none")] | None = (
        None
    )
    grace_s: Annotated[float, _Doc(ge=0, description="time to stop after a cancel or timeout")] = 10.0
    key_ttl_s: Annotated[float, _Doc(gt=0, description="how long an idempotency key is remembered")] = 86400.0
    payload_limit: Annotated[int, _Doc(gt=0, description="largest payload in bytes")] = 1_048_576
    priority_boost_s: Annotated[float, _Doc(ge=0, description="how much waiting one point of priority is worth")] = 60.0
    concurrency: Annotated[int, _Doc(ge=1, description="jobs one engine runs at a time")] = 10
    children: Annotated[
        int,
        _Doc(ge=0, le=10_000, description="most child processes of one engine; 0: the number of processors"),
    ] = 0
    unstored: Annotated[
        int,
        _Doc(ge=0, description="most jobs of one engine that have begun and whose end is not stored; 0: `concurrency`"),
    ] = 0
    claim_batch: Annotated[int, _Doc(ge=1, le=10_000, description="most jobs taken in one claim")] = 100
    check_s: Annotated[float, _Doc(gt=0, description="how often the leader checks the invariants")] = 60.0
    recheck_s: (
        Annotated[float, _Doc(gt=0, description="how often to look for late outputs of partial batches; or 'off'")]
        | None
    ) = 600.0
    keep_succeeded_s: (
        Annotated[float, _Doc(gt=0, description="how long succeeded jobs are kept; 'off': forever")] | None
    ) = 604800.0
    keep_other_s: (
        Annotated[float, _Doc(gt=0, description="how long other settled jobs are kept; 'off': forever")] | None
    ) = None
    keep_events: Annotated[int, _Doc(ge=10, description="newest events kept per job; 'off' keeps all")] | None = 1000

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, usual: Mapping[str, Any] | None = None, **given: Any) -> Settings:
        """Settings from the environment; `given` arguments take precedence. Refuses an unknown variable. `usual` are
        the different defaults of the store.

        >>> Settings.from_env({"MAINSTAY_LEESE": "20s"})
        Traceback (most recent call last):
        mainstay.errors.UnknownOption: MAINSTAY_LEESE: unknown option; did you mean 'MAINSTAY_LEASE'?
        """
        variables = {variable_of(field): public_name(field) for field in cls.__struct_fields__}
        found: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith(PREFIX) or variable.startswith(CLUSTER_PREFIX) or variable in NOT_SETTINGS:
                continue
            if variable not in variables:
                raise UnknownOption(variable, variables)
            found[variables[variable]] = text
        try:
            return cls.of(**{**(usual or {}), **found, **given})
        except InvalidInput as error:
            raise _as_written(error, found.keys() - given.keys()) from None

    @classmethod
    def of(cls, **given: Any) -> Settings:
        """Settings from values as users write them: `Settings.of(lease="20s", retries=5)`."""
        return cls().changed(**given)

    def changed(self, **given: Any) -> Settings:
        """A copy with some values replaced, validated like `of`."""
        public = {public_name(name): name for name in self.__struct_fields__}
        values = msgspec.structs.asdict(self)
        for name, value in given.items():
            field = public.get(name)
            if field is None:
                raise UnknownOption(name, public)
            values[field] = _parse(name, field, value)
        try:
            changed = msgspec.convert(values, Settings)
        except msgspec.ValidationError as error:
            raise _refusal(str(error)) from None
        if changed.heartbeat_s >= changed.lease_s:
            beat, lease = duration_text(changed.heartbeat_s), duration_text(changed.lease_s)
            raise InvalidInput(
                "lease", f"{lease} is not longer than the heartbeat ({beat}); live sessions would be reaped"
            )
        return changed


def public_name(field: str) -> str:
    """The public name, without the unit."""
    return field.removesuffix("_s")


def variable_of(field: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + public_name(field).upper()


def describe() -> list[tuple[str, str, str, str]]:
    """(name, variable, default, meaning) of every setting, for the generated page."""
    hints = get_type_hints(Settings, include_extras=True)
    return [
        (public_name(info.name), variable_of(info.name), _shown(info.default), _meaning(hints[info.name]))
        for info in msgspec.structs.fields(Settings)
    ]


def _shown(default: object) -> str:
    if default is None:
        return "off"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return duration_text(default)
    return str(default)


def _meaning(hint: Any) -> str:
    """The description in a type hint; for an optional setting it is inside the union."""
    for part in get_args(hint):
        if isinstance(part, msgspec.Meta):
            return part.description or ""
        if inner := _meaning(part):
            return inner
    return ""


def _parse(name: str, field: str, value: Any) -> Any:
    if isinstance(value, str) and value.strip().lower() in ("off", "none"):
        return False if field == "jitter" else None
    if value is None:
        return None
    if field.endswith("_s"):
        return seconds(value, field=name)
    if field == "jitter":
        return _switch(name, value)
    return _whole(name, value)


def _switch(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text in ("on", "true", "yes", "1"):
        return True
    if text in ("false", "no", "0"):
        return False
    raise InvalidInput(name, f"{value!r} is neither on nor off")


def _whole(name: str, value: Any) -> int:
    # True is an int and int(2.7) is 2: neither is intended
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return int(value)
        except ValueError:
            pass
    raise InvalidInput(name, f"{value!r} is not a whole number")


def _as_written(error: InvalidInput, from_env: AbstractSet[str]) -> InvalidInput:
    """The error with the name of the variable, if the value came from one."""
    if error.field in from_env:
        return InvalidInput(variable_of(error.field), error.rule)
    if error.field == "lease" and "heartbeat" in from_env:
        return InvalidInput(error.field, f"{error.rule} (the heartbeat is set by {variable_of('heartbeat')})")
    return error


def _refusal(message: str) -> InvalidInput:
    """A msgspec message (``Expected `float` > 0.0 - at `$.lease_s` ``) as an error of ours."""
    rule, _, path = message.partition(" - at ")
    field = path.strip("`").removeprefix("$.")
    if "got `null`" in rule:
        rule = "cannot be switched off"
    else:
        rule = "must be" + rule.removeprefix("Expected").replace("`float`", "").replace("`int`", "").rstrip()
        rule = " ".join(rule.split()).removesuffix(".0") + (" seconds" if field.endswith("_s") else "")
    return InvalidInput(public_name(field) or "settings", rule)
