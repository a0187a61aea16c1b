"""Exit codes of the commands, for scripts."""

from __future__ import annotations

DONE = 0
#: the command worked, and its result is negative
NO = 1
#: the command could not do its work
FAILED = 2
#: of a batch: some of its outputs are missing
PARTIAL = 3
#: of two load tests: they are not comparable, or had too few requests for a comparison
INCOMPARABLE = 97
#: of a load test with --strict: its result is not trustworthy
UNTRUSTED = 98
#: of a load test: a threshold failed; other load tools use the same number
BROKEN = 99
#: as a shell reports Ctrl-C
INTERRUPTED = 130
#: as a shell reports a closed pipe, for example by `head`; 1 would mean that `check` found violations
READER_GONE = 141
#: SIGTERM ended the command cleanly
TERMINATED = 143

#: code -> meaning, for the help and the documentation
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
