"""Bad input is refused before the load, and says what to do."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mainstay.errors import InvalidInput
from mainstay.load.engine.preflight import make_room
from mainstay.load.plan import LoadOptions
from mainstay.load.planned_run import PlannedRun
from mainstay.load.sources import load_file
from mainstay.load.target import TargetOptions, TargetServer
from tests.load.trials import GET, ran, run_of, written

SHOP = "class Shop(Workflow):\n    "


async def refused(tmp_path: Path, text: str, **options: object) -> str:
    with pytest.raises(InvalidInput) as refusal:
        await ran(written(tmp_path, text), **{"duration": "1s", **options})
    return str(refusal.value)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# the classes and the options: nothing was started -----------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"duration": "10x"},
            "Shop.duration: is not a duration; write it with a unit, like '30s', '5m' or '1h30m'\n  10x\n    ^",
        ),
        ({"duration": "0s"}, "must be longer than zero"),
        ({"timeout": "0s"}, "must be longer than zero"),
        ({"duration": ""}, "is not a duration"),
        ({"duration": "5"}, "5\n   ^ here"),
        ({"drain": "-1s"}, "Shop.drain"),
        ({"rate": "fast"}, "'fast' is not a rate; write it like '2000/s'"),
        ({"rate": "0/s"}, "out of range"),
        ({"rate": "-5/s"}, "not a rate"),
        ({"rate": "5/s", "think": "1s"}, "with a rate, iterations start when they are due"),
        ({"rate": "5/s", "iterations": 5}, "both given"),
        ({"rate": "5/s", "stages": "1s:5"}, "write the rates into the stages"),
        ({"stages": "30s"}, "30s\n     ^ here"),
        ({"stages": "30s:10,1m:5/s"}, "use one kind"),
        ({"stages": "1s:x"}, "neither a number of users nor a rate"),
        ({"stages": "1s:-4"}, "negative"),
        ({"stages": "0s:5"}, "all stages have a duration of zero"),
        ({"stages": "5s:0"}, "all stages have a level of zero"),
        ({"stages": "5s:10", "duration": "5s"}, "the stages set the duration"),
        ({"vus": 0}, "Shop.vus: 0 is not a number of at least 1"),
        ({"vus": -3}, "Shop.vus"),
        ({"iterations": 0}, "Shop.iterations"),
        ({"processes": 0}, "out of range; from 1 to 1024"),
        ({"arrivals": "uniform", "rate": "5/s"}, "write constant or poisson"),
        ({"rate": "5/s", "max_in_flight": 0}, "Shop.max_in_flight"),
        ({"max_in_flight": 5}, "max_in_flight: needs a rate"),
        ({"vus": 5, "catch_up": False}, "catch_up: needs a rate"),
        ({"arrivals": "poisson"}, "arrivals: needs a rate"),
        ({"pacing": "soon"}, "soon\n  ^ here"),
        ({"think": "3s-1s"}, "the wrong way round"),
        (
            {"thresholds": ("p95 of brwse < 200ms",)},
            "thresholds: there is no step brwse; did you mean browse?\n  p95 of brwse < 200ms\n         ^",
        ),
        ({"thresholds": ("p95 of {a:b} < 1s",)}, "known tags: none\n  p95 of {a:b} < 1s\n         ^"),
        ({"thresholds": ("p95 < 200mz",)}, "^"),
        ({"workflows": ("Shp",)}, "workflows: unknown workflow 'Shp'; did you mean 'Shop'?"),
        ({"workflows": ("Nope",)}, "workflows: unknown workflow 'Nope'; known workflows: Shop"),
    ],
)
def test_bad_options_are_refused_when_the_run_is_planned(tmp_path: Path, options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        run_of(written(tmp_path, GET), **options)

    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SHOP + "@step('b')\n    async def a(self): ...\n    @step('a')\n    async def b(self): ...",
            "line 8: Shop: steps wait for each other: a -> b -> a",
        ),
        (SHOP + "@step('login')\n    async def a(self): ...", "comes after the unknown step 'login'"),
        (SHOP + "@step()\n    async def vus(self): ...", "vus is a reserved name"),
        (SHOP + "@step()\n    async def client(self): ...", "client is a reserved name"),
        (
            SHOP + "@step()\n    async def a(self): ...\n    @step()\n    async def a(self): ...",
            "Shop.a: is defined twice",
        ),
        (SHOP + "@step\n    async def a(self): ...", "@step('login')"),
        (SHOP + "@step()\n    def a(self): ...", "is a plain function; a @step is an `async def`"),
        (SHOP + "@setup\n    @step()\n    async def a(self): ...", "has two decorators, @setup and @step"),
        (SHOP + "@state('X')\n    async def a(self) -> Use[int]: ...", "a @state is a plain function"),
        (SHOP + "data = 5 +", "line 9 cannot be loaded: SyntaxError"),
        ("import nothing_of_that_name", "line 8 cannot be loaded: ModuleNotFoundError"),
        ("raise SystemExit(3)", "line 8 cannot be loaded: SystemExit: 3"),
        ("x = 1", "defines no workflow"),
        ("class Shop(Workflow): ...", "has only workflows without steps"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        written(tmp_path, text)

    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(self, who) -> None: ...", "Shop.a(who): has no value"),
        ("(self, *who) -> None: ...", "steps take keyword arguments only"),
        (
            "(self, url: URL) -> None: ...",
            "Shop.a(url): a URL is prepared before the load starts; give it a default value",
        ),
        ("(self, headers: Headers = 5) -> None: ...", "Shop.a(headers): 5 is not a valid Headers"),
        ("(self, headers: Headers = {'a b': 'c'}) -> None: ...", "Shop.a(headers): is not a valid header name"),
        ("(self) -> Nothing: ...", "its annotation 'Nothing' cannot be resolved"),
        ("(self) -> 5: ...", "Shop.a: is annotated to return 5, which is not a type"),
        ("(self) -> [Check]: ...", "which is not a type"),
        ("(self) -> Metric[int]: ...", "is annotated Metric[int]; write Metric[Counter]"),
        ("(self) -> HTTPResponse | int: ...", "is annotated to return HTTPResponse | int"),
        ("(self) -> Metric: ...", "write Metric[Counter], Metric[Gauge], Metric[Rate] or Metric[Trend]"),
        (
            "(self) -> HTTPResponse | int: ...",
            "a measured step returns a response, a list, tuple or dict of responses, or None",
        ),
        (
            "(self) -> None: ...\n    def __init__(self, shop): ...",
            "Shop.__init__(shop): has no default, and users are created without arguments",
        ),
        (
            "(self, b) -> None: ...\n    @step()\n    async def b(self) -> None: ...",
            "b may not be done by then; write @step('b')",
        ),
        ("(self) -> None: ...\n    @state('Other')\n    def b(self) -> Use[int]: ...", "there is no workflow 'Other'"),
        (
            "(self) -> None: ...\n    @state('Shop')\n    def b(self) -> int: ...",
            "annotate the @state with -> Provide[...] or -> Use[...]",
        ),
    ],
)
def test_a_step_that_could_never_be_called_is_refused_when_the_run_is_planned(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        run_of(written(tmp_path, f"{SHOP}@step()\n    async def a{text}"))

    assert said in str(refusal.value)


def test_workflows_that_share_by_weight_must_say_the_same(tmp_path: Path) -> None:
    text = """
    class A(Workflow):
        weight, vus = 1, 5
        @step()
        async def a(self): ...
    class B(Workflow):
        weight, rate = 1, "5/s"
        @step()
        async def b(self): ...
    """
    with pytest.raises(InvalidInput, match=r"the same model; they have A \(closed\), B \(open\)"):
        run_of(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused_with_one_that_is(tmp_path: Path) -> None:
    written(tmp_path, GET, "shop.py")

    with pytest.raises(InvalidInput, match=r"does not exist; did you mean shop.py\?"):
        load_file(tmp_path / "shopp.py")


# the generators: they were started, and nothing was sent ----------------------------------------------


@pytest.mark.slow
async def test_a_host_that_cannot_be_resolved_is_refused(tmp_path: Path) -> None:
    said = await refused(tmp_path, GET, base_url="http://nowhere.invalid:8080", processes=2)

    assert "Shop.browse(url)" in said
    assert "nowhere.invalid cannot be resolved" in said


#: a step that names no place itself
PLAIN = """
class Shop(Workflow):
    @step()
    async def browse(self) -> HTTPResponse:
        return await self.client.http.get("/")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://nowhere.invalid:8080", "nowhere.invalid cannot be resolved"),
        ("udp://nowhere.invalid:8080", "nowhere.invalid cannot be resolved"),
        ("http://127.0.0.1:1", "127.0.0.1:1 refused the connection"),
        ("shop.test", "Shop.base_url: 'shop.test' has no known scheme"),
    ],
)
async def test_the_base_of_plain_paths_is_looked_at_too(tmp_path: Path, url: str, said: str) -> None:
    assert said in await refused(tmp_path, PLAIN, base_url=url)


@pytest.mark.slow
async def test_a_bad_certificate_of_the_base_of_plain_paths_is_told(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions(tls=True)) as target:
        assert "certificate" in await refused(tmp_path, PLAIN, base_url=target.url)
        assert target.counts().begun == 0


@pytest.mark.slow
async def test_a_connection_that_is_refused_is_told(tmp_path: Path) -> None:
    port = free_port()

    said = await refused(tmp_path, GET, base_url=f"http://127.0.0.1:{port}")

    assert f"127.0.0.1:{port}" in said
    assert "refused" in said.lower()


@pytest.mark.slow
async def test_a_bad_certificate_is_told_and_can_be_trusted(tmp_path: Path) -> None:
    async with TargetServer(TargetOptions(tls=True)) as target:
        said = await refused(tmp_path, GET, base_url=target.url)
        assert "certificate" in said
        assert "name its authority with --ca, or switch verification off with --insecure" in said
        assert target.counts().begun == 0

        trusted = await ran(written(tmp_path, GET), iterations=2, base_url=target.url, ca=target.certificate)
        assert (trusted.requests, trusted.failed) == (2, 0)
        careless = await ran(written(tmp_path, GET), iterations=2, base_url=target.url, verify=False)
        assert (careless.requests, careless.failed) == (2, 0)


@pytest.mark.slow
async def test_a_url_without_a_host_is_refused_by_the_step_that_has_it(tmp_path: Path) -> None:
    said = await refused(tmp_path, GET)

    assert "Shop.browse(url)" in said
    assert "no base_url is set" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("Feed.csv('no-such-file.csv')", "Shop.data: no-such-file.csv cannot be read"),
        ("iter(int, 1)", "Shop.data: it has more than 1,000,000 rows, or never ends"),
        ("[]", "Shop.data: it has no rows"),
        ("'users.csv'", "Shop.data: 'users.csv' is not data"),
        ("(1 / 0 for _ in range(1))", "division by zero"),
    ],
)
async def test_data_that_cannot_be_used_is_refused(tmp_path: Path, data: str, said: str) -> None:
    text = f"class Shop(Workflow):\n    data = {data}\n    @step()\n    async def act(self): ..."

    assert said in await refused(tmp_path, text)


@pytest.mark.slow
def test_too_few_open_files_are_refused_with_how_to_raise_them(tmp_path: Path) -> None:
    written(tmp_path, GET)
    program = textwrap.dedent(
        f"""
        import asyncio, resource, sys
        sys.path.insert(0, {os.getcwd()!r})
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
        from mainstay.load.sources import load_file
        from tests.load.trials import ran
        try:
            asyncio.run(ran(load_file("shop.py"), vus=500, base_url="http://127.0.0.1:1"))
        except Exception as error:
            print(type(error).__name__, error)
        """
    )

    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "InvalidInput vus: each process needs 564 open files, and 200 are allowed here" in ended.stdout
    assert "ulimit -n 564" in ended.stdout


def overlapping(tmp_path: Path, **options: object) -> PlannedRun:
    """Three calls that wait for nothing, and what is made of them."""
    calls = [f"@step()\n    async def {name}(self, url: URL = '/') -> HTTPResponse: ..." for name in "abc"]
    checks = [f"@step('a', 'b', 'c')\n    async def {name}(self) -> Check: ..." for name in ("d", "e", "f", "g")]
    return PlannedRun(written(tmp_path, SHOP + "\n    ".join([*calls, *checks])), LoadOptions(**options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vus": 60}, "vus: each process needs 244 open files, and 140 are allowed here"),
        ({"vus": 60}, "ulimit -n 244"),
        ({"vus": 60}, "or fewer users"),
        ({"rate": "10/s", "max_in_flight": 60}, "max_in_flight: each process needs 244 open files"),
        ({"rate": "10/s", "max_in_flight": 60}, "or a smaller max_in_flight"),
    ],
)
def test_each_step_that_overlaps_needs_an_open_file_of_each_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (140, 140))
    planned = overlapping(tmp_path, **options)

    with pytest.raises(InvalidInput) as refusal:
        make_room(planned.plan, planned.blueprints, 1)

    assert said in str(refusal.value)
    make_room(planned.plan, planned.blueprints, 3)


@pytest.mark.parametrize(
    ("steps", "base_url", "each"),
    [
        ([("a", (), "http://one/"), ("b", ("a",), "http://two/")], None, 2),
        ([("a", (), "http://one/"), ("b", ("a",), "http://one:80/else")], None, 1),
        ([("a", (), "http://one/"), ("b", ("a",), "/else")], "http://one", 1),
        ([("a", (), "http://one/"), ("b", ("a",), "/else")], "http://two", 2),
        ([("a", (), "http://one/"), ("b", ("a",), None)], "http://two", 2),
        ([("a", (), "http://one/"), ("b", ("a",), None)], None, 1),
        ([("a", (), "http://one/"), ("b", (), None)], None, 2),
        ([("a", (), "http://one/"), ("b", (), "http://one/"), ("c", ("a", "b"), "http://two/")], None, 3),
    ],
)
def test_each_place_that_a_user_calls_needs_an_open_file_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[str, tuple[str, ...], str | None]],
    base_url: str | None,
    each: int,
) -> None:
    made = [
        f"@step{after!r}\n    async def {name}(self{f', url: URL = {url!r}' if url else ''}) -> HTTPResponse: ..."
        for name, after, url in steps
    ]
    planned = PlannedRun(written(tmp_path, SHOP + "\n    ".join(made)), LoadOptions(vus=100, base_url=base_url))
    needed = 64 + 100 * each

    monkeypatch.setattr(resource, "getrlimit", lambda _: (needed, needed))
    make_room(planned.plan, planned.blueprints, 1)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (needed - 1, needed - 1))
    with pytest.raises(InvalidInput, match=f"vus: each process needs {needed} open files"):
        make_room(planned.plan, planned.blueprints, 1)


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    planned = PlannedRun(written(tmp_path, GET), LoadOptions(vus=300))
    try:
        make_room(planned.plan, planned.blueprints, 1)
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert raised >= 364


@pytest.mark.slow
async def test_what_was_refused_leaves_no_process_behind(tmp_path: Path) -> None:
    run = run_of(written(tmp_path, GET), processes=2, base_url="http://nowhere.invalid")
    with pytest.raises(InvalidInput):
        await asyncio.wait_for(run.run(), 60)

    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if children.exists():
        assert all("mainstay.load" not in _command(pid) for pid in children.read_text().split())


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
