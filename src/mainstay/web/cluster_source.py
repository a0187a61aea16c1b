"""What a server needs of a cluster. The cluster is a layer above, so the program that serves passes it in."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..control.explain import ClusterFacts
from ..stores.metrics import StoreMetric

if TYPE_CHECKING:
    from ..bundles import BundleClient
    from ..stores.remote import ManagerConnection

#: one metric, its labels and its value
ClusterRow = tuple[StoreMetric, tuple[str, ...], float]


class ClusterSource(Protocol):
    """A cluster that a server shows. It is entered when the server starts, and left when it stops."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def bundles(self) -> BundleClient | None:
        """The code that its managers keep; None: it cannot be reached from here."""
        ...

    @property
    def connection(self) -> ManagerConnection | None:
        """The bus of its managers; None: it cannot be reached from here."""
        ...

    def metrics(self) -> Iterable[ClusterRow]:
        """What is known now, for a scrape; it asks no manager."""
        ...

    async def facts(self) -> ClusterFacts | None:
        """What explains jobs; None if no manager has answered lately."""
        ...


__all__ = ["ClusterRow", "ClusterSource"]
