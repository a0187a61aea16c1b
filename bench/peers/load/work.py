"""What a script is asked to do, from its environment. Imported in every generator's environment: stdlib only."""

from __future__ import annotations

import os

SCENARIO = os.environ.get("BENCH_SCENARIO", "get")
BASE = os.environ.get("BENCH_BASE", "http://127.0.0.1:9")
CONNECTIONS = int(os.environ.get("BENCH_CONNECTIONS", "1"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "1"))
OUT = os.environ.get("BENCH_OUT", "counted.json")

SMALL, JSON = f"{BASE}/small.txt", f"{BASE}/json"

USER = {"user": "ada", "password": "correct horse battery staple"}
ORDER = {"item": 7, "count": 2}
# 1024 bytes as JSON, as the standard library writes it
KILOBYTE = {"name": "ada", "text": "x" * 997}
