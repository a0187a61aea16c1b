"""Azurite, Microsoft's stand-in for Azure Blob storage: an npm package, kept in a folder of the user's cache.

It honours If-Match and If-None-Match. Its account has a key of its own, made for each server.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import quote

from .programs import ServerMissing, program
from .server import OneProcess, Process, free_port, own_folder

RELEASE = "3.37.0"
ACCOUNT = "mainstay"
CONTAINER = "registry"
#: it has many parts: two minutes on a slow machine
_INSTALL_S = 600
_PROGRAM = Path("node_modules/azurite/dist/src/blob/main.js")


class Azurite(OneProcess):
    """Its blob service. What it has stays in its folder over `stop` and `start`, and so does the port."""

    version = RELEASE

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.port = port or free_port()
        self._key = base64.b64encode(os.urandom(64)).decode()
        kept = own_folder(folder, "azurite", None)
        command = [
            "/usr/bin/env",
            f"AZURITE_ACCOUNTS={ACCOUNT}:{self._key}",
            program("node", "node"),
            str(_installed()),
        ]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(kept)]
        # clients are newer than it; it has no other way to say which versions of the service it knows
        command += ["--skipApiVersionCheck", "--disableTelemetry", "--silent"]
        self._process = Process(command, folder / "azurite.log", self.answers, ends_on=signal.SIGTERM, cwd=kept)

    def database(self, name: str) -> str:
        return azure_url(self.url(), name)

    def url(self) -> str:
        """Its address, with the name and the key of the account before it."""
        return f"http://{ACCOUNT}:{quote(self._key, safe='')}@127.0.0.1:{self.port}"


def azure_url(server: str, prefix: str) -> str:
    account, _, address = server.removeprefix("http://").partition("@")
    name, _, key = account.partition(":")
    endpoint = f"http://{address}/{name}"
    return f"az://{CONTAINER}/{prefix}?endpoint={endpoint}&allow_http=on&account_name={name}&account_key={key}"


def _installed() -> Path:
    """Where it is; npm puts it there when it is not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainstay" / f"azurite-{RELEASE}"
    if not (cache / _PROGRAM).exists():
        npm = program("npm", "npm")
        # aside first: whoever is stopped in the middle of it leaves nothing that looks installed
        aside = cache.with_name(f"{cache.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(aside)]
        complete = False
        try:
            done = subprocess.run(
                [*command, f"azurite@{RELEASE}"], check=False, capture_output=True, text=True, timeout=_INSTALL_S
            )
            said, complete = done.stderr[-300:], done.returncode == 0
        except subprocess.TimeoutExpired:
            said = f"it took more than {_INSTALL_S} s"
        if not (complete and (aside / _PROGRAM).exists()):
            shutil.rmtree(aside, ignore_errors=True)
            raise ServerMissing(f"`azurite` is not on this machine and npm could not install it: {said}")
        try:
            aside.rename(cache)
        except OSError:  # another run was first
            shutil.rmtree(aside, ignore_errors=True)
    return cache / _PROGRAM
