"""Load from several machines: one `LoadRunner` whose generators run behind a bus.

`FleetRunner` leads a run; on each machine a `SliceService` obeys it. A *slice* is the part of one machine: some of the
generator processes, which are numbered over all slices. The bus may lose, repeat and reorder messages: commands are
repeated until they are answered, and windows that were lost are asked for again.
"""

from __future__ import annotations

from .demand import FleetDemand
from .fleet_runner import FleetRunner
from .settings import FleetMember, FleetSettings
from .slice_service import SliceService

__all__ = ["FleetDemand", "FleetMember", "FleetRunner", "FleetSettings", "SliceService"]
