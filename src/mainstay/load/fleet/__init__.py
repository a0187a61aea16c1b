"""Load from several machines: one `LoadRunner` whose generators run behind a bus.

`FleetRunner` leads a run; on each machine a `SliceService` obeys it. A *slice* is the part of one machine: some of the
generator processes, which are numbered over all slices. The bus may lose, repeat and reorder messages: commands are
repeated until they are answered, and windows that were lost are asked for again.
"""

from __future__ import annotations

from .assignments import SliceAssignments
from .demand import FleetDemand
from .fleet_runner import FleetRunner
from .live import BusOutput
from .messages import SliceEnd, live_subject
from .record import FleetRecord, GoEnd, GoRecord, LostPart
from .settings import FleetMember, FleetSettings
from .slice_service import SliceOutcome, SliceService

__all__ = [
    "BusOutput",
    "FleetDemand",
    "FleetMember",
    "FleetRecord",
    "FleetRunner",
    "FleetSettings",
    "GoEnd",
    "GoRecord",
    "LostPart",
    "SliceAssignments",
    "SliceEnd",
    "SliceOutcome",
    "SliceService",
    "live_subject",
]
