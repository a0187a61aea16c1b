"""Start a program that dies with the process that started it: `python -m mainstay.cluster.nats_child PARENT PROGRAM
ARGUMENT...`. The setting survives `exec`, so that no process of ours stays between the two."""

from __future__ import annotations

import os
import sys

from ..parent import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - found by our parent
