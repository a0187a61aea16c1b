"""Which queues each node may claim from, as the certificates of the nodes name them.

A manager reads the certificates from a folder, not from a node: a node could show an older one that names more. Only
the certificates are needed there; their keys stay on the nodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import MainstayError
from .address import ClusterAddress
from .certs import node_queues

log = logging.getLogger("mainstay.cluster")

#: how often the folder is looked at, and how often for a node that is not in it
LOOK_S, UNKNOWN_LOOK_S = 5.0, 1.0


def certs_folder(address: ClusterAddress, given: str) -> Path | None:
    """Where a manager has the certificates of nodes: the given folder, or that of its own certificate."""
    if given:
        return Path(given)
    return Path(address.files["cert"]).parent if address.files else None


class NodeQueues:
    """Reads the folder again when a file of it has changed: a new node needs no restart of the managers."""

    def __init__(self, folder: Path | None, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._now_s = now_s
        self._looked_s = float("-inf")
        self._read: list[tuple[str, int, int]] | None = None
        self._queues: dict[str, tuple[str, ...]] = {}

    def files(self) -> list[Path]:
        """The certificates of nodes."""
        return [] if self._folder is None else sorted(self._folder.glob("node-*.pem"))

    def of(self, node: str) -> Sequence[str] | None:
        """The queues of a node. None: all; empty: none, because its certificate is not in the folder."""
        if self._folder is None:
            return None
        since_s = self._now_s() - self._looked_s
        # a claim must not cost a look into a folder of many files
        if since_s >= (LOOK_S if node in self._queues else UNKNOWN_LOOK_S):
            self._looked_s = self._now_s()
            self._refresh(self._folder)
        found = self._queues.get(node)
        return () if found is None else found or None

    def _refresh(self, folder: Path) -> None:
        try:
            seen = [(path.name, status.st_mtime_ns, status.st_size) for path in self.files() if (status := path.stat())]
            if seen != self._read:
                self._queues, self._read = node_queues(folder), seen
        except (OSError, MainstayError) as error:  # half written, for example: what was read before still counts
            log.warning("cannot read the certificates of nodes folder=%s: %s", folder, error)


__all__ = ["LOOK_S", "NodeQueues", "certs_folder"]
