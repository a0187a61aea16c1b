"""Command lines with placeholders: `sbatch --parsable --job-name {name} --wrap {line}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence

from ...errors import InvalidInput

#: doubled braces are not a placeholder: they belong to the command, as in a Go template
_PLACEHOLDER = re.compile(r"(?<!\{)\{(\w*)\}(?!\})")


class Template:
    """A command line, split into words like in a shell, and run without one.

    `{command}` stands alone and becomes several words. `{line}` becomes the same as one word, quoted for a shell. Other
    placeholders are replaced inside their word, which is never split.

    >>> Template("nice -n 5 {command}", placeholders=("command",), field="exec").words(command=["echo", "a b"])
    ['nice', '-n', '5', 'echo', 'a b']
    >>> Template("ssh host {line}", placeholders=("line",), field="exec").words(line=["echo", "a b"])
    ['ssh', 'host', "echo 'a b'"]
    >>> Template("show {{if .ok}}{{else}}gone{{end}}", placeholders=("handle",), field="status").words()
    ['show', '{{if', '.ok}}{{else}}gone{{end}}']
    """

    def __init__(self, text: str, *, placeholders: Collection[str], field: str) -> None:
        self.text = text
        try:
            self._words = shlex.split(text)
        except ValueError as error:
            raise InvalidInput(field, f"{text!r} is not a command line: {error}") from None
        if not self._words:
            raise InvalidInput(field, "is empty; write a command line")
        for word in self._words:
            self._check(word, placeholders, field)

    @staticmethod
    def _check(word: str, placeholders: Collection[str], field: str) -> None:
        for placeholder in _PLACEHOLDER.findall(word):
            if placeholder not in placeholders:
                known = ", ".join(f"{{{name}}}" for name in placeholders)
                raise InvalidInput(field, f"{word!r}: {{{placeholder}}} is unknown here; use {known}")
            if placeholder == "command" and word != "{command}":
                raise InvalidInput(
                    field, f"{word!r}: {{command}} is several words and must stand alone; {{line}} is one word"
                )

    def uses(self, *placeholders: str) -> bool:
        """Whether it contains one of these."""
        return any(found in placeholders for word in self._words for found in _PLACEHOLDER.findall(word))

    def words(self, *, command: Sequence[str] = (), line: Sequence[str] = (), **values: str) -> list[str]:
        """The command to run."""
        texts: Mapping[str, str] = {**values, "line": shlex.join(line)}
        words: list[str] = []
        for word in self._words:
            if word == "{command}":
                words += command
            else:
                words.append(_PLACEHOLDER.sub(lambda placeholder: texts[placeholder[1]], word))
        return words
