"""The adapters of stores on servers, for the suite."""

from __future__ import annotations

from tests.stores.versioned.conformance.adapter import Adapter

REMOTE: list[Adapter] = []
