"""`python -m mainstay.load.target`: a target with options as JSON. People use `mainstay load target`."""

from __future__ import annotations

import sys

import msgspec

from ...errors import InvalidInput
from . import TargetOptions, TargetServer, serve


def main(arguments: list[str]) -> int:
    """Run a target. Prints its URL when it is ready, and its counts at the end, each as one line of JSON."""
    try:
        options = msgspec.json.decode(" ".join(arguments) or "{}", type=TargetOptions)
        counts = serve(options, started=_started)
    except (msgspec.DecodeError, InvalidInput) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    _print(counts)
    return 0


def _started(target: TargetServer) -> None:
    _print(
        {
            "url": target.url,
            "port": target.port,
            "tcp": target.tcp_port,
            "udp": target.udp_port,
            "certificate": target.certificate,
        }
    )


def _print(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
