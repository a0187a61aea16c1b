"""The program of a node that another program starts: `python -m mainstay.cluster.node_program`, with its configuration
on standard input."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from ..parent import die_with_parent
from ..worker import logs
from .node_config import NodeConfig
from .node_parent import NodeParent


def main() -> int:
    """Read the configuration and run."""
    config = msgspec.json.decode(sys.stdin.buffer.read(), type=NodeConfig)
    die_with_parent(config.parent)
    logs.configure(config.options.log_level, as_json=config.options.json_logs)
    return asyncio.run(NodeParent(config).run())


if __name__ == "__main__":
    sys.exit(main())
