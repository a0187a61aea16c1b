"""What an answer of the server survives, in words: what was asked for, and what it is configured to give.

`synchronous_commit` says what a commit waits for. `local` waits for the server's own disk; `on` besides for the disks
of its synchronous standbys; `remote_apply` besides until those show it to whoever reads there. (`remote_write` is left
out: it does not survive a power cut on the standby.) Which standbys are synchronous says `synchronous_standby_names`;
if that is empty there are none, and all of these mean the server's own disk.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...durability import Durability

#: what `synchronous_commit` is for a level
COMMITS: Mapping[Durability, str] = {"local": "local", "replicated": "on", "applied": "remote_apply"}
#: the settings that decide
SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")


def promised(level: Durability | None, settings: Mapping[str, str]) -> str:
    """What survives what, for a level that was asked for, or None for what the server does by itself.

    >>> promised("local", {"fsync": "on"})
    "local: on the server's disk; no replica is waited for"
    """
    commit = settings.get("synchronous_commit", "on") if level is None else COMMITS[level]
    standbys = settings.get("synchronous_standby_names", "").strip()
    said = level or f"as the server is set (synchronous_commit={commit})"
    if commit == "off":
        reached = "an answer survives the death of the client; a crash of the server may take the last ones"
    elif commit == "local":
        reached = "on the server's disk; no replica is waited for"
    elif not standbys:
        reached = "on the server's disk; no replica confirms it, because synchronous_standby_names is empty there"
    elif commit == "remote_apply":
        reached = (
            f"on the disks of the server and of its synchronous standbys ({standbys}), and visible to readers there"
        )
    elif commit == "remote_write":
        reached = f"on the server's disk, and handed to its synchronous standbys ({standbys}), not yet to their disks"
    else:
        reached = f"on the disks of the server and of its synchronous standbys ({standbys})"
    unsafe = [f"{name}=off" for name in ("fsync", "full_page_writes") if settings.get(name) == "off"]
    but = (
        f", but it runs with {' and '.join(unsafe)}: a crash of its machine may lose or damage anything"
        if unsafe
        else ""
    )
    return f"{said}: {reached}{but}"
