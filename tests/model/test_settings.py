from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mainstay.errors import InvalidInput, UnknownOption
from mainstay.model import Settings
from mainstay.model.settings import NOT_SETTINGS, describe, variable_of

# the defaults the design promises, as people write them
PROMISED = {
    "heartbeat": "2s",
    "lease": "8s",
    "sweep": "1s",
    "poll": "1s",
    "retries": "3",
    "backoff_base": "2s",
    "backoff_cap": "10m",
    "jitter": "on",
    "crash_budget": "3",
    "run_timeout": "1h",
    "stall_timeout": "off",
    "key_ttl": "1d",
    "payload_limit": "1048576",
    "concurrency": "10",
    "children": "0",
    "unstored": "0",
    "claim_batch": "100",
    "check": "1m",
    "keep_succeeded": "7d",
    "keep_other": "off",
}


def test_the_defaults_are_the_promised_ones() -> None:
    shown = {name: default for name, _, default, _ in describe()}

    assert {name: shown[name] for name in PROMISED} == PROMISED


def test_every_setting_is_described_and_has_its_own_variable() -> None:
    rows = describe()

    assert all(meaning for *_, meaning in rows)
    assert len({variable for _, variable, _, _ in rows}) == len(Settings.__struct_fields__)
    assert not {variable for _, variable, _, _ in rows} & NOT_SETTINGS


@pytest.mark.parametrize("field", Settings.__struct_fields__)
def test_every_default_survives_being_written_down_and_read_back(field: str) -> None:
    shown = {variable: default for _, variable, default, _ in describe()}

    read = Settings.from_env({variable_of(field): shown[variable_of(field)]})

    assert read == Settings()


def test_the_environment_sets_and_arguments_win() -> None:
    environ = {"MAINSTAY_LEASE": "20s", "MAINSTAY_RETRIES": "5", "PATH": "/bin"}

    found = Settings.from_env(environ, retries=7)

    assert (found.lease_s, found.retries) == (20.0, 7)


@pytest.mark.parametrize("variable", sorted(NOT_SETTINGS))
def test_variables_that_are_not_settings_are_passed_over(variable: str) -> None:
    assert Settings.from_env({variable: "anything"}) == Settings()


def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownOption, match="MAINSTAY_RETRYS: unknown option; did you mean 'MAINSTAY_RETRIES'?"):
        Settings.from_env({"MAINSTAY_RETRYS": "5"})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"MAINSTAY_LEASE": "20"}, "MAINSTAY_LEASE: '20' is not a duration; write it with a unit"),
        ({"MAINSTAY_LEASE": "1s"}, "MAINSTAY_LEASE: 1s is not longer than the heartbeat (2s)"),
        ({"MAINSTAY_RETRIES": "many"}, "MAINSTAY_RETRIES: 'many' is not a whole number"),
        ({"MAINSTAY_CLAIM_BATCH": "0"}, "MAINSTAY_CLAIM_BATCH: must be >= 1"),
    ],
)
def test_a_bad_value_from_the_environment_is_refused_with_its_variable(environ: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Settings.from_env(environ)

    assert str(refused.value).startswith(message)


def test_a_bad_argument_is_called_by_its_own_name_beside_an_environment() -> None:
    with pytest.raises(InvalidInput, match="^retries: must be >= 0"):
        Settings.from_env({"MAINSTAY_RETRIES": "3", "MAINSTAY_LEASE": "20s"}, retries=-1)


def test_a_heartbeat_from_the_environment_that_no_lease_fits_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"^lease: 8s is not longer .* \(.* is set by MAINSTAY_HEARTBEAT\)"):
        Settings.from_env({"MAINSTAY_HEARTBEAT": "10s"})


def test_a_misspelt_argument_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownOption, match="heartbeet: unknown option; did you mean 'heartbeat'?"):
        Settings.of(heartbeet="2s")


def test_the_stored_name_with_its_unit_is_not_an_argument() -> None:
    with pytest.raises(UnknownOption, match="lease_s: unknown option; did you mean 'lease'?"):
        Settings.of(lease_s=8.0)


@pytest.mark.parametrize(
    ("given", "field", "rule"),
    [
        ({"lease": "20"}, "lease", "'20' is not a duration; write it with a unit"),
        ({"lease": 20}, "lease", "20 is not a duration; write it with a unit, like '30s'"),
        ({"lease": 20.5}, "lease", "20.5 is not a duration; write it with a unit"),
        ({"lease": "0s"}, "lease", "must be > 0 seconds"),
        ({"lease": "off"}, "lease", "cannot be switched off"),
        ({"lease": "2s"}, "lease", "2s is not longer than the heartbeat (2s)"),
        ({"heartbeat": "10s"}, "lease", "8s is not longer than the heartbeat (10s)"),
        ({"run_timeout": timedelta(0)}, "run_timeout", "must be > 0 seconds"),
        ({"run_timeout": timedelta(seconds=-1)}, "run_timeout", "is out of range"),
        ({"retries": -1}, "retries", "must be >= 0"),
        ({"retries": "many"}, "retries", "'many' is not a whole number"),
        ({"retries": 2.7}, "retries", "2.7 is not a whole number"),
        ({"retries": True}, "retries", "True is not a whole number"),
        ({"retries": None}, "retries", "cannot be switched off"),
        ({"claim_batch": 10_001}, "claim_batch", "must be <= 10000"),
        ({"keep_events": 9}, "keep_events", "must be >= 10"),
        ({"jitter": "sometimes"}, "jitter", "'sometimes' is neither on nor off"),
    ],
)
def test_a_bad_value_is_refused_with_the_field_and_the_rule(given: dict[str, Any], field: str, rule: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Settings.of(**given)

    assert refused.value.field == field
    assert rule in refused.value.rule


@pytest.mark.parametrize("name", ["run_timeout", "stall_timeout", "keep_succeeded", "keep_other", "keep_events"])
@pytest.mark.parametrize("off", ["off", " None ", None])
def test_what_may_be_switched_off_can_be(name: str, off: str | None) -> None:
    changed = msgspec.structs.asdict(Settings.of(**{name: off}))

    assert changed.get(name, changed.get(f"{name}_s")) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("on", True), ("yes", True), ("1", True), (True, True), ("off", False), ("0", False), (False, False)],
)
def test_a_switch_is_read_as_people_write_it(text: Any, value: bool) -> None:
    assert Settings.of(jitter=text).jitter is value


def test_a_changed_copy_keeps_the_rest_and_is_judged_as_a_whole() -> None:
    quick = Settings.of(heartbeat="100ms", lease="1s")

    changed = quick.changed(lease=timedelta(milliseconds=500))

    assert (changed.heartbeat_s, changed.lease_s) == (0.1, 0.5)
    with pytest.raises(InvalidInput, match="^lease: 100ms is not longer than the heartbeat"):
        quick.changed(lease="100ms")
    assert quick.lease_s == 1.0
