"""A slower wire to a server, in a process of its own so that the proxy's work is nobody else's.

Run as: python -m servers.delayed URL --up 0.001 --down 0.001. It prints the URL to use, and runs until it is killed.
"""

from __future__ import annotations

import argparse
import threading

from .proxy import Proxy


def main() -> None:
    parser = argparse.ArgumentParser(prog="servers.delayed", description="delay everything between here and a server")
    parser.add_argument("url", help="of the server, with its port")
    parser.add_argument("--up", type=float, default=0.0, help="seconds added to what clients send")
    parser.add_argument("--down", type=float, default=0.0, help="seconds added to what the server answers")
    asked = parser.parse_args()
    proxy = Proxy.before(asked.url)
    proxy.delay(up=asked.up, down=asked.down)
    print(proxy.url, flush=True)  # whoever started it reads this line
    threading.Event().wait()


if __name__ == "__main__":
    main()
