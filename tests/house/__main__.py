"""Print what the house must show: `make house`. `--strict` fails if a limit is broken; `--list` prints the places."""

from __future__ import annotations

import argparse
import sys

from tests.house.measures import MEASURES


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description="Measure the house.")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a limit is broken")
    parser.add_argument("--list", metavar="WORD", help="print the places of the measures whose name has this word")
    options = parser.parse_args(arguments)
    broken = False
    print(f"{'':<42}{'now':>10}{'limit':>10}")
    for measure in MEASURES:
        if options.list and options.list not in measure.name:
            continue
        found = measure.take()
        over = found.value > measure.limit
        broken |= over
        value = f"{found.value:,.2f}" if isinstance(found.value, float) else f"{found.value:,}"
        print(f"{measure.name:<42}{value:>10}{measure.limit:>10,}{'  over' if over else ''}")
        if options.list or measure is MEASURES[0]:
            print("\n".join(f"    {line}" for line in found.details))
    return 1 if broken and options.strict else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
