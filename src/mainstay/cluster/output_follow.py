"""The output of one attempt as an operator reads it: answers and live messages in one text, with its gaps named."""

from __future__ import annotations

import codecs

from .output_messages import JobOutput, OutputChunk


class OutputReader:
    """Puts the parts together by their positions: what came before is skipped, and what is missing is counted."""

    def __init__(self) -> None:
        #: position up to which it was read; None: nothing was found yet
        self.position: int | None = None
        #: bytes that were lost on the way, or were no longer kept
        self.missed = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def answer(self, found: JobOutput) -> str:
        """The new text in the answer of a manager."""
        if not found.output.kept:
            return ""
        return self._part(found.output.start, found.output.data, first="earlier ")

    def chunk(self, chunk: OutputChunk) -> str:
        """The new text in a message of the node."""
        return self._part(chunk.start, chunk.data)

    def end(self) -> str:
        """What is left of an unfinished character."""
        return self._decoder.decode(b"", final=True)

    def _part(self, start: int, data: bytes, *, first: str = "") -> str:
        at = self.position or 0
        if start + len(data) < at or (start + len(data) == at and self.position is not None):
            return ""
        gap = ""
        if start > at:
            self.missed += start - at
            word = first if self.position is None else ""
            gap = f"[{start - at} {word}bytes not shown: only the newest are kept]\n"
            self._decoder.reset()
        self.position = start + len(data)
        return gap + self._decoder.decode(data[max(0, at - start) :])


__all__ = ["OutputReader"]
