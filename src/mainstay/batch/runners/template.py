"""Command lines with holes: `sbatch --parsable --job-name {name} --wrap {line}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from ...errors import InvalidInput

#: doubled braces are not a hole: they belong to the command, as in a Go template
_HOLE = re.compile(r"(?<!\{)\{(\w*)\}(?!\})")


class Template:
    """A command line, split into words as a shell would, and run without one.

    `{command}` is a word of its own and becomes several. `{line}` becomes the same as one text, quoted for a shell to
    read. The other holes are filled where they stand, and never split.

    >>> Template("nice -n 5 {command}", holes=("command",), field="exec").words(command=["echo", "a b"])
    ['nice', '-n', '5', 'echo', 'a b']
    >>> Template("ssh host {line}", holes=("line",), field="exec").words(line=["echo", "a b"])
    ['ssh', 'host', "echo 'a b'"]
    >>> Template("show {{if .ok}}{{else}}gone{{end}}", holes=("handle",), field="status").words()
    ['show', '{{if', '.ok}}{{else}}gone{{end}}']
    """

    def __init__(self, text: str, *, holes: Collection[str], field: str) -> None:
        self.text = text
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise InvalidInput(field, f"{text!r} is not a command line: {error}") from None
        if not self._words:
            raise InvalidInput(field, "is empty; write a command line")
        for word in self._words:
            self._check(word, holes, field)

    @staticmethod
    def _check(word: str, holes: Collection[str], field: str) -> None:
        for hole in _HOLE.findall(word):
            if hole not in holes:
                known = ", ".join(f"{{{name}}}" for name in holes)
                raise InvalidInput(field, f"{word!r}: there is no {{{hole}}} here; there is {known}")
            if hole == "command" and word != "{command}":
                raise InvalidInput(
                    field, f"{word!r}: {{command}} is several words and has to stand alone; {{line}} is the same as one"
                )

    def uses(self, *holes: str) -> bool:
        """Whether one of these is in it."""
        return any(found in holes for word in self._words for found in _HOLE.findall(word))

    def words(self, *, command: Sequence[str] = (), line: Sequence[str] = (), **values: str) -> list[str]:
        """The command to run."""
        texts: Mapping[str, str] = {**values, "line": shlex.join(line)}
        made: list[str] = []
        for word in self._words:
            if word == "{command}":
                made += command
            else:
                made.append(_HOLE.sub(lambda hole: texts[hole[1]], word))
        return made
