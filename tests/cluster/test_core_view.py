"""The cores of a cluster, from rows, sessions and what managers hear; and how they are shown."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from mainstay.cluster.cli import view
from mainstay.cluster.cli.routes import show_routes
from mainstay.cluster.core_view import ClusterCores, CoreRun, cluster_cores
from mainstay.cluster.status import ClusterStatus, ManagerInfo, NodeBeat, NodeInfo, NodeState
from mainstay.cluster.web.core_grid import core_grid, run_styles
from mainstay.control import CoreHolding, CoreUse, CoreWaiter, JobRoutes, UnitAssignment, UnitRoute
from mainstay.model import Offer, Session

SHOP, MAIL = "01a1f28c-b9ab-77a4-9e4e-153c37766f17", "01a1f28c-b9ab-77a4-9e4e-153c37766f20"


def node(name: str, state: NodeState = "active", cores: int = 4) -> NodeInfo:
    beat = NodeBeat(node=name, number=1, incarnation="i", cores=cores, labels={"zone": "a"})
    return NodeInfo(name=name, state=state, since_ms=0, heard_ms=1, beat=beat)


def session(name: str, cores: int = 4, number: int = 1) -> Session:
    return Session(
        id=f"{name}.{number}", node=name, standing=True, started_ms=number, offer=Offer(tasks={}, cores=cores)
    )


def holding(name: str, cores: int, *, job: str = SHOP, part: str = "slice 0", status: str = "running") -> CoreHolding:
    name_of_run = "shop" if job == SHOP else "mail"
    return CoreHolding(
        job=job, name=name_of_run, part=part, session=f"{name}.1", cores=cores, status=status, since_ms=5
    )


def run(number: int) -> CoreRun:
    return CoreRun(job=f"{number:06x}", name=f"run {number}", cores=1, nodes=1, since_ms=number)


def two_runs() -> ClusterCores:
    held = (holding("n1", 3), holding("n2", 4, part="slice 1"), holding("n1", 1, job=MAIL, status="dispatched"))
    waits = CoreWaiter(job="w", name="late", place=1, of=1, cores=9, since_ms=10_000, reason="It needs 9 cores.")
    nodes = [node("n1"), node("n2", "draining"), node("n3"), node("n4", "away"), node("n5", "closed"), node("n10")]
    sessions = [session(each.name) for each in nodes if each.name != "n10"]
    return cluster_cores([CoreUse(held, (waits,)), CoreUse()], sessions, nodes, at_ms=70_000)


def test_a_run_with_two_parts_on_one_node_is_on_one_node() -> None:
    """A lost slice goes beside another one of its run if no other node has its cores."""
    held = (holding("n1", 2), holding("n1", 1, part="slice 1"))
    [found] = cluster_cores([CoreUse(held, ())], [session("n1")], [node("n1")], at_ms=70_000).runs
    assert (found.nodes, found.cores) == (1, 3)


def status(nodes: list[NodeInfo]) -> ClusterStatus:
    return ClusterStatus(
        cluster="shop", environment="live", at_ms=70_000, manager="m1", managers=[], nodes=nodes, leads=[]
    )


def test_the_status_shows_the_load_of_nodes_and_what_managers_lead() -> None:
    nodes = [msgspec.structs.replace(node("n1"), overload="stressed"), node("n2")]
    managers = [ManagerInfo(name="m1", led=("j1", "j2")), ManagerInfo(name="m2", level="busy")]
    shown = view.status_parts(
        msgspec.structs.replace(status(nodes), managers=managers), Console(file=io.StringIO(), width=140)
    )

    lines = printed(shown).splitlines()

    assert "2: m1 (leads 2 jobs), m2 (busy)" in next(line for line in lines if "managers" in line)
    assert [line.split()[:3] for line in lines if line.split()[:1] in (["n1"], ["n2"])] == [
        ["n1", "active", "stressed"],
        ["n2", "active", "normal"],
    ]


def printed(*parts: object, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(*parts)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_cores_are_added_up_and_only_those_of_active_nodes_are_free() -> None:
    found = two_runs()

    by_name = {each.node: each for each in found.nodes}
    assert list(by_name) == ["n1", "n10", "n2", "n3", "n4"], "a closed node has no cores"
    assert {name: (each.used, each.free, each.state) for name, each in by_name.items()} == {
        "n1": (4, 0, "active"),
        "n2": (4, 0, "draining"),
        "n3": (0, 4, "active"),
        "n4": (0, 0, "away"),
        # it has no session for placed work, so no run gets its cores
        "n10": (0, 0, "active"),
    }
    assert (found.total, found.used, found.free) == (20, 8, 4)
    assert [(each.name, each.cores, each.nodes) for each in found.runs] == [("shop", 7, 2), ("mail", 1, 1)]
    assert [(share.job, share.cores, share.status) for share in by_name["n1"].shares] == [
        (SHOP, 3, "running"),
        (MAIL, 1, "dispatched"),
    ]


def test_a_node_that_this_manager_has_not_heard_yet_is_shown_with_what_it_holds() -> None:
    found = cluster_cores([CoreUse((holding("n7", 2),))], [session("n7", 8)], [], at_ms=0)
    [unheard] = found.nodes
    assert (unheard.node, unheard.state, unheard.cores, unheard.used, unheard.free) == ("n7", "away", 8, 2, 0)


def test_a_node_that_came_back_with_fewer_cores_has_none_free() -> None:
    sessions = [session("n1", 8), session("n1", 2, number=2)]
    [found] = cluster_cores([CoreUse((holding("n1", 6),))], sessions, [node("n1")], at_ms=0).nodes
    assert (found.cores, found.used, found.free) == (2, 6, 0)


def test_each_run_has_a_letter_and_a_colour_of_its_own_as_long_as_there_are_some() -> None:
    runs = two_runs().runs
    many = [run(number) for number in range(30)]
    assert len({style.colour for style in run_styles(runs).values()}) == 2
    assert len({style.letter for style in run_styles(many).values()}) == 30
    assert len({style.colour for style in run_styles(many[:8]).values()}) == 8
    # a later run changes nothing
    assert run_styles(many[:5]).items() <= run_styles(many).items()


def test_the_grid_tells_all_that_it_shows_in_words_and_has_n10_after_n2() -> None:
    grid = core_grid(two_runs())
    assert [cell.node for cell in grid.cells] == ["n1", "n2", "n3", "n4", "n10"]
    first = grid.cells[0]
    shop, mail = (line.style.letter for line in grid.runs)
    assert first.label == (
        f"n1: active; 4 of 4 cores held by runs; {shop} shop slice 0 3 cores; "
        f"{mail} mail slice 0 1 core, not confirmed yet; zone=a"
    )
    assert [each.path.count("M") for each in first.runs] == [3, 1]
    assert (first.free, grid.cells[2].free.count("M")) == ("", 4)


def test_the_squares_of_a_large_node_stand_for_several_cores() -> None:
    found = cluster_cores([CoreUse((holding("n1", 300),))], [session("n1", 512)], [node("n1")], at_ms=0)
    [cell] = core_grid(found).cells
    assert cell.runs[0].path.count("M") + cell.free.count("M") == 128
    assert cell.width <= 16 * 11


def test_the_terminal_shows_cores_runs_and_waits() -> None:
    nodes = [node("n1"), node("n2", "draining"), node("n3")]
    text = printed(view.status_parts(status(nodes), Console(width=140), two_runs()))
    assert "8 of 20 held by runs, 4 free; 2 runs, 1 waiting" in text
    assert "shop …37766f17 3, mail …37766f20 1" in text
    assert "1 of 1" in text
    assert "It needs 9 cores." in text
    assert "4/4" in text
    # managers of an earlier version know nothing of cores
    assert "held by" not in printed(view.status_parts(status(nodes), Console(width=140)))


def test_the_terminal_shows_a_line_for_each_assignment() -> None:
    lost = UnitAssignment(
        token=1, node="n1", session="n1.1", assigned_ms=0, confirmed_ms=900, ended_ms=4000, end="lost", why="it died"
    )
    now = UnitAssignment(token=2, node="n3", session="n3.1", assigned_ms=5000)
    units = (
        UnitRoute(id="u", unit="slice/1/0", status="dispatched", assignments=(lost, now)),
        UnitRoute(id="v", unit="slice/1/1", status="pending"),
    )
    console = Console(file=io.StringIO(), width=140)
    show_routes(JobRoutes(id="j", name="shop", status="running", units=units), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "2 units on 2 nodes" in text
    for part in ("slice/1/0", "after 900ms", "4s", "lost", "it died", "n3", "pending, not placed"):
        assert part in text, part
