"""How a command ends, as a number for scripts. The one place that says so."""

from __future__ import annotations

from . import INTERRUPTED, READER_GONE

DONE = 0
#: the answer is no: it was done as asked, and what came out is not what one hopes for
NO = 1
#: it could not be done
FAILED = 2
#: of a batch: some of its outputs are there, and some are not
PARTIAL = 3
#: of two load tests: they are not comparable, or had too few requests to tell whether something got worse
INCOMPARABLE = 97
#: of a load test with --strict: its numbers are not those of the target
UNTRUSTED = 98
#: of a load test: a threshold did not hold; the number that other load tools use, too
BROKEN = 99

#: of a command that SIGTERM ended in good order
TERMINATED = 143

#: code -> meaning, for the help and the page
EXIT_CODES = {
    DONE: "done as asked (also when nothing matched)",
    NO: "the result is negative: violations, no success, or jobs that were not changed",
    FAILED: "an error: wrong usage, no such job, not confirmed, timeout",
    PARTIAL: "a batch is partial: some of its outputs exist, and a resume makes the rest",
    INCOMPARABLE: "two load tests are not comparable, or had too few requests",
    UNTRUSTED: "a load test is not trustworthy, with --strict",
    BROKEN: "a threshold of a load test failed",
    INTERRUPTED: "stopped by Ctrl-C",
    READER_GONE: "the reader of its output closed the pipe, as head does",
    TERMINATED: "stopped cleanly by SIGTERM",
}

__all__ = [
    "BROKEN",
    "DONE",
    "EXIT_CODES",
    "FAILED",
    "INCOMPARABLE",
    "INTERRUPTED",
    "NO",
    "PARTIAL",
    "READER_GONE",
    "TERMINATED",
    "UNTRUSTED",
]
