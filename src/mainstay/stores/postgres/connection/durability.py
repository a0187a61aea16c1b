"""What a commit of the server survives, in words: from the requested level and the configuration of the server.

`synchronous_commit` sets what a commit waits for. `local` waits for the server's own disk; `on` also for the disks of
its synchronous standbys; `remote_apply` also until readers there can see it. (`remote_write` is not used: it does not
survive a power cut on the standby.) `synchronous_standby_names` sets which standbys are synchronous. If it is empty
there are none, and all of these levels mean the server's own disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...durability import Durability

#: the value of `synchronous_commit` for a level
COMMITS: Mapping[Durability, str] = {"local": "local", "replicated": "on", "applied": "remote_apply"}
#: the settings of the server that matter
SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")


def promised(level: Durability | None, settings: Mapping[str, str]) -> str:
    """What a commit survives, for a requested level, or for None with the server's own configuration.

    >>> promised("local", {"fsync": "on"})
    "local: on the server's disk; without waiting for a replica"
    """
    commit = settings.get("synchronous_commit", "on") if level is None else COMMITS[level]
    standbys = settings.get("synchronous_standby_names", "").strip()
    name = level or f"as the server is configured (synchronous_commit={commit})"
    if commit == "off":
        reached = "a write survives a crash of the client; a crash of the server may lose the last ones"
    elif commit == "local":
        reached = "on the server's disk; without waiting for a replica"
    elif not standbys:
        reached = "on the server's disk; no replica confirms it, because its synchronous_standby_names is empty"
    elif commit == "remote_apply":
        reached = (
            f"on the disks of the server and of its synchronous standbys ({standbys}), and visible to readers there"
        )
    elif commit == "remote_write":
        reached = f"on the server's disk, and sent to its synchronous standbys ({standbys}), but not yet on their disks"
    else:
        reached = f"on the disks of the server and of its synchronous standbys ({standbys})"
    unsafe = [f"{name}=off" for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    but = (
        f", but it runs with {' and '.join(unsafe)}: a crash of its machine may lose or damage anything"
        if unsafe
        else ""
    )
    return f"{name}: {reached}{but}"
