"""The runners of a program, by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from ...errors import InvalidInput
from .port import Runner
from .process import ProcessRunner

LOCAL = "local"
EXEC = "exec:"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def shown_runner(name: str) -> str:
    """A runner as it is shown: only the program of a command line, which may contain secrets.

    >>> shown_runner("exec:curl --header 'token: 1234' {line}"), shown_runner("slurm")
    ('exec:curl', 'slurm')
    """
    words = name.removeprefix(EXEC).split(maxsplit=1)
    return f"{EXEC}{words[0]}" if name.startswith(EXEC) and words else name


class Runners:
    """The values of `runner=...` of a batch: "local", a runner of the app, or `exec:COMMAND`."""

    def __init__(self, given: Mapping[str, Runner] | None = None) -> None:
        self._known = dict(given or {})
        for name, runner in self._known.items():
            if not _NAME.fullmatch(name) or name == LOCAL:
                raise InvalidInput("runners", f"{name!r} is not a valid name for a runner; use letters, digits, - _ .")
            if not all(hasattr(runner, method) for method in ("start", "look", "stop", "every_s")):
                raise InvalidInput(f"runners.{name}", f"{runner!r} is not a runner; see mainstay.batch.runners.Runner")

    def get(self, name: str) -> Runner:
        """The runner of a name; raises `InvalidInput`."""
        if name.startswith(EXEC):
            return ProcessRunner(name.removeprefix(EXEC).strip() or "{command}")
        if name not in self._known:
            close = difflib.get_close_matches(name, [LOCAL, *self._known], n=1)
            known = ", ".join([LOCAL, *self._known, f"{EXEC}COMMAND"])
            hint = f"did you mean {close[0]!r}?" if close else f"it has {known}"
            raise InvalidInput("runner", f"the app has no runner {name!r}; {hint}")
        return self._known[name]

    def check(self, name: str) -> str:
        """Refuse unknown runners."""
        if not isinstance(name, str) or not name:
            raise InvalidInput("runner", f"{name!r} is not the name of a runner")
        if name != LOCAL:
            self.get(name)
        return name
