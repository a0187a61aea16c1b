"""Where the programs of a server are; installed when they are missing and that is possible."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

#: kind of server -> (its Debian package, the program that proves it is there)
_KINDS = {
    "redis": ("redis-server", "redis-server"),
    "postgresql": ("postgresql", "initdb"),
    "pgbouncer": ("pgbouncer", "pgbouncer"),
    "node": ("nodejs", "node"),
    "npm": ("npm", "npm"),
    "nginx": ("nginx-light", "nginx"),
    "openssl": ("openssl", "openssl"),
    # no servers, but what is measured against one
    "wrk": ("wrk", "wrk"),
    "hey": ("hey", "hey"),
    # and what looks at one
    "chromium": ("chromium", "chromium"),
    "promtool": ("prometheus", "promtool"),
}


#: seconds to wait for another apt
_LOCKED_S = 300


class ServerMissing(Exception):
    """The server's programs are not on this machine and could not be installed."""


def installed(kind: str) -> bool:
    """Whether a server of this kind can be started as things are."""
    return _found(_KINDS[kind][1]) is not None


def program(kind: str, name: str) -> str:
    """The path of one of its programs, after installing the package if that is possible."""
    failed = ""
    if (found := _found(name)) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with _alone():
            # whoever was waited for may have installed it
            if (found := _found(name)) is None:
                failed = _install(_KINDS[kind][0])
                found = _found(name)
    if found is None:
        why = f" (apt-get could not: {failed})" if failed else ""
        raise ServerMissing(f"`{name}` is not on this machine; install the package `{_KINDS[kind][0]}`{why}")
    return found


def version(path: str) -> str:
    """What the program answers to --version."""
    return subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout


def package_version(kind: str) -> str:
    """For a program that does not tell its version: that of its Debian package."""
    ask = ["dpkg-query", "-W", "-f", "${Version}", _KINDS[kind][0]]
    try:
        told = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.rpartition(":")[2].partition("-")[0]


def unprivileged() -> str:
    """Whom root lets run the servers that refuse to run as root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise ServerMissing("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process of this machine at a time: apt refuses a second one, and tests run in several."""
    # not in the folder for temporary files, which each run of tests may have for itself
    with Path("/tmp/mainstay-install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(package: str) -> str:
    """What apt said if it could not; empty if it could."""
    # runlevel 1 keeps the package from starting a server of its own
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    # somebody else on this machine may be installing something
    patiently = ["-o", f"DPkg::Lock::Timeout={_LOCKED_S}"]
    install = ["apt-get", *patiently, "install", "-y", "--no-install-recommends", package]
    said = ""
    # a fresh image has no package lists, an old one stale ones; with good ones the update is saved
    for command in (install, ["apt-get", *patiently, "update"], install):
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if command is install and done.returncode == 0:
            return ""
        said = " ".join(done.stderr.split()[-60:]) or said
    return said


def _found(name: str) -> str | None:
    # Debian keeps the server programs of PostgreSQL off the PATH, and a user's PATH leaves /usr/sbin out
    debian = sorted(Path("/usr/lib/postgresql").glob("[0-9]*/bin"), key=lambda bin_: float(bin_.parent.name))
    return shutil.which(
        name, path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, reversed(debian)), "/usr/sbin"])
    )
