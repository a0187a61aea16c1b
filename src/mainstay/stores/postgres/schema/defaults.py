"""What a job submitted in SQL is like where nothing is said: as one submitted in Python, from the same place."""

from __future__ import annotations

import msgspec

from ....model import AWAITS_MS, Options, Settings


def submit_defaults() -> str:
    """The function that tells `submit` in SQL."""
    settings = Settings()
    told = {
        "options": Options(),
        "boost_ms": round(settings.priority_boost_s * 1000),
        "key_ttl_ms": round(settings.key_ttl_s * 1000),
        "payload_limit": settings.payload_limit,
        "awaits_ms": AWAITS_MS,
    }
    text = msgspec.json.encode(told).decode()
    return (
        "CREATE OR REPLACE FUNCTION mainstay.submit_defaults() RETURNS jsonb LANGUAGE sql IMMUTABLE AS $defaults$\n"
        f"    SELECT '{text}'::jsonb\n$defaults$;\n"
    )
