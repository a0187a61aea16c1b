"""Write the generated parts of the pages: `make docs`.

A page is prose with generated parts between

    <!-- generated: NAME -->
    <!-- end -->

This script fills them from the code, so that the pages cannot drift from it. `--check` writes nothing and fails if a
page is out of date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import (
    batch_report,
    cluster_report,
    fan_in_report,
    load_nodes_report,
    load_report,
    nodes_report,
    report,
    web_report,
    window_flood_report,
)
from docs.vocabularies import VOCABULARIES, Vocabulary
from mainstay.cluster.web.metrics import CLUSTER_METRICS
from mainstay.lifecycle import JOB, UNIT, Table
from mainstay.lifecycle.diagram import FLAG_MEANINGS, HEADINGS, mermaid, rows
from mainstay.lifecycle.events import FLAGS
from mainstay.model.settings import describe
from mainstay.report.metrics import METRICS
from mainstay.stores.metrics import StoreMetric
from mainstay.web.api.routes import operations
from mainstay.web.live import live_operations
from soak import report as soaks

FOLDER = Path(__file__).resolve().parent
_PART = re.compile(r"(<!-- generated: ([a-z -]+) -->\n).*?(<!-- end -->)", re.DOTALL)

_EVENT_FLAGS = {
    "": "a declared move; the table allows it",
    "note": "a remark; the state stays as it is (an extension granted, a priority changed)",
    "forced": "an operator moved it past the table, with a reason",
    "repair": "`mainstay check --repair` repaired it; the reason names the violation",
    "tombstone": "the job was deleted; this event stays",
}


def grid(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    all_lines = [headings, ["---"] * len(headings), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in all_lines)


def _table(table: Table) -> str:
    return grid(HEADINGS, [(f"`{name}`", flags, to, meaning) for name, flags, to, meaning in rows(table)])


def _operations() -> str:
    lines = [
        (f"`{one.method} {one.path}`", one.scope, one.summary)
        for one in sorted((*operations(), *live_operations()), key=lambda one: (one.tag, one.path, one.method))
    ]
    return grid(("request", "scope", "what it does"), lines)


def _diagram(table: Table) -> str:
    return f"```mermaid\n{mermaid(table)}\n```"


def _vocabulary(vocabulary: Vocabulary) -> str:
    lines = [(f"`{w.theirs}`", _code(w.job), _code(w.unit), w.note) for w in vocabulary.words]
    return f"### {vocabulary.title}\n\n{vocabulary.about}\n\n" + grid(("there", "job", "unit", ""), lines)


def _code(name: str) -> str:
    return f"`{name}`" if name else ""


def _settings() -> str:
    lines = [(f"`{name}`", f"`{variable}`", default, meaning) for name, variable, default, meaning in describe()]
    return grid(("setting", "environment variable", "default", "meaning"), lines)


def _queue_benchmark() -> str:
    stored = report.load()
    tables = [f"### {section.title}\n\n{grid(section.headings, section.lines)}" for section in report.sections(stored)]
    return "\n\n".join([report.about(stored), report.peers_ahead(stored), *tables])


def _batch_benchmark() -> str:
    if not batch_report.KEPT.exists():
        return "No run is stored yet: `make bench` makes one."
    stored = batch_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in batch_report.sections(stored)]
    return "\n\n".join([batch_report.about(stored), *tables])


def _load_benchmark() -> str:
    if not load_report.KEPT.exists():
        return "No run is stored yet: `make bench` makes one."
    stored = load_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in load_report.sections(stored)]
    return "\n\n".join([load_report.about(stored), *tables])


def _web_benchmark() -> str:
    if not web_report.KEPT.exists():
        return "No run is stored yet: `make bench` makes one."
    stored = web_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in web_report.sections(stored)]
    return "\n\n".join([web_report.about(stored), *tables])


def _nodes_benchmark() -> str:
    if not nodes_report.KEPT.exists():
        return "No run is stored yet: `make bench` makes one."
    stored = nodes_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in nodes_report.sections(stored)]
    return "\n\n".join([nodes_report.about(stored), *tables])


def _cluster_benchmark() -> str:
    if not cluster_report.KEPT.exists():
        return "No run is stored yet: `python -m bench --only cluster` makes one."
    stored = cluster_report.load()
    tables = [grid(each.headings, each.lines) for each in cluster_report.sections(stored)]
    return "\n\n".join([cluster_report.about(stored), *tables])


def _fan_in_benchmark() -> str:
    if not fan_in_report.KEPT.exists():
        return "No run is stored yet: `python -m bench --only fan-in` makes one."
    stored = fan_in_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in fan_in_report.sections(stored)]
    return "\n\n".join([fan_in_report.about(stored), *tables])


def _flood_benchmark() -> str:
    if not window_flood_report.KEPT.exists():
        return "No run is stored yet: `python -m bench --only window-flood` makes one."
    stored = window_flood_report.load()
    tables = [grid(each.headings, each.lines) for each in window_flood_report.sections(stored)]
    return "\n\n".join([window_flood_report.about(stored), *tables])


def _load_nodes_benchmark() -> str:
    if not load_nodes_report.KEPT.exists():
        return "No run is stored yet: `python -m bench --only load-nodes` makes one."
    stored = load_nodes_report.load()
    tables = [f"### {each.title}\n\n{grid(each.headings, each.lines)}" for each in load_nodes_report.sections(stored)]
    return "\n\n".join([load_nodes_report.about(stored), *tables])


def _soak() -> str:
    stored = soaks.load()
    return f"{grid(soaks.headings(stored), soaks.lines(stored))}\n\n{soaks.about(stored)}"


def _metrics(metrics: Sequence[StoreMetric]) -> str:
    lines = [(_code(m.name), m.kind, ", ".join(_code(label) for label in m.labels), m.help) for m in metrics]
    return grid(("metric", "kind", "labels", "meaning"), lines)


PARTS: dict[str, Callable[[], str]] = {
    "job table": lambda: _table(JOB),
    "unit table": lambda: _table(UNIT),
    "job diagram": lambda: _diagram(JOB),
    "unit diagram": lambda: _diagram(UNIT),
    "flags": lambda: grid(("flag", "meaning"), [(f"`{f}`", meaning) for f, meaning in FLAG_MEANINGS.items()]),
    "event flags": lambda: grid(("flag", "meaning"), [(_code(f) or "(none)", _EVENT_FLAGS[f]) for f in FLAGS]),
    "vocabularies": lambda: "\n\n".join(_vocabulary(v) for v in VOCABULARIES),
    "settings": _settings,
    "metrics": lambda: _metrics(METRICS),
    "cluster metrics": lambda: _metrics(CLUSTER_METRICS),
    "http operations": _operations,
    "queue benchmark": _queue_benchmark,
    "batch benchmark": _batch_benchmark,
    "load benchmark": _load_benchmark,
    "web benchmark": _web_benchmark,
    "nodes benchmark": _nodes_benchmark,
    "cluster benchmark": _cluster_benchmark,
    "load nodes benchmark": _load_nodes_benchmark,
    "fan-in benchmark": _fan_in_benchmark,
    "flood benchmark": _flood_benchmark,
    "soak": _soak,
}


def part_names(text: str) -> list[str]:
    """Names of the generated parts of a page, in order."""
    return [match[2] for match in _PART.finditer(text)]


def rendered(text: str) -> str:
    """The page with every generated part filled."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]()}\n\n{match[3]}", text)


def main(arguments: Sequence[str]) -> int:
    stale = []
    for page in sorted(FOLDER.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (fresh := rendered(text)) != text:
            stale.append(page)
            if "--check" not in arguments:
                page.write_text(fresh, encoding="utf-8")
    for page in stale:
        print(f"{'out of date' if '--check' in arguments else 'written'}: docs/{page.name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
