"""The adapters the suite runs against. A new one adds an entry here and passes, or is not an adapter."""

from __future__ import annotations

from tests.stores.versioned.conformance.adapter import Adapter
from tests.stores.versioned.conformance.remote import REMOTE

LOCAL = [
    Adapter(name="memory", at=lambda _: "memory:", shared=False),
    Adapter(name="file", at=lambda folder: f"file://{folder}/values"),
    Adapter(name="sqlite", at=lambda folder: f"sqlite:///{folder}/values.db"),
]
ADAPTERS = [*LOCAL, *REMOTE]
