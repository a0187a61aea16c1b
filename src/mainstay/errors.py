"""Every error Mainstay raises.

    MainstayError
    ├── InvalidInput            a value was refused; names the field and the rule
    │   ├── UnknownOption       no such option (with "did you mean")
    │   ├── PayloadTooLarge     bigger than the payload limit
    │   ├── NoAdapter           no store adapter for this URL; names what to install
    │   ├── MissingExtra        an optional part is not installed; names the extra
    │   ├── BadArguments        stored arguments no longer fit the task; names the field
    │   └── BadResult           a task returned another type than it declares
    ├── InvalidTransition       the lifecycle table forbids the move
    ├── Conflict                another writer was faster: read again
    │   ├── KeyConflict         idempotency key used before with other content
    │   ├── UniqueClash         an unsettled job already holds this unique key
    │   ├── AlreadySubmitted    a job that had to be new was submitted before
    │   ├── VersionChanged      the job is not at the version that the change requires
    │   └── TooManyConflicts    a versioned value changed during every try to write it; also a StoreError
    ├── JobNotFound             no such job
    ├── OutputMissing           an output does not exist, or was never published
    ├── OutputCorrupt           an output differs from what was published
    ├── JobFailed               a job settled without a result
    ├── UnknownTask             no task of this name in this program
    ├── WaitTimeout             a job had not settled at the end of the wait
    ├── StaleClaim              the claim was lost; the write was refused and recorded
    ├── SessionLost             the session is dead or was never opened: open a new one
    ├── WorkerNotFound          no live worker has this name or id
    ├── NotLeader               a leader's write after its lease was lost
    ├── RunnerFailed            an outside runner did not answer, or refused
    ├── CallFailed              a call of a load test got no response; `kind` says what failed
    ├── RequestRefused          a Mainstay server refused a request; `reason` says why
    ├── ServerUnreachable       a Mainstay server did not answer, after all retries
    ├── ReconnectFailed         a run that is followed could not be reached for a minute; it goes on
    ├── BusError                a message could not be sent over the bus, or was not answered
    │   ├── NoResponders        nothing is subscribed to the subject of a request
    │   ├── RequestTimeout      a request was not answered in time; it may have been processed
    │   └── BusClosed           used after close
    ├── RoleRefused             the caller's role does not allow the request; names what would
    ├── WrongCluster            the caller belongs to another cluster or environment
    ├── VersionSkew             the caller's version is too far from this one
    ├── ReplayRefused           a call that was made before came again, too late for a repeat or changed
    ├── BundleMissing           the code of a program, or a file of it, is not stored
    ├── BundleCorrupt           a file of a bundle is not the one that its digest names, or unpacks to too much
    └── StoreError              the engine of the store refused or failed
        ├── StoreLocked         another process keeps the database locked
        ├── StoreFull           no space left; nothing was written
        ├── StoreReadOnly       the folder or file cannot be written
        ├── StoreDenied         the account lacks a permission; names it
        ├── PathBlocked         another file or folder is in the place of an output; names it
        ├── StoreDamaged        the file itself is damaged, not only a row in it
        ├── StoreReplaced       another store is now in the place of the opened one
        ├── RowDamaged          one stored row cannot be read; the rest is fine
        ├── SchemaTooNew        written by a newer Mainstay
        ├── SchemaTooOld        not migrated to this Mainstay yet; names the command
        ├── WrongAuditKey       the audit trail was sealed with another key, or with none
        ├── UnsafeEngine        the engine version has a bug that can lose data here
        ├── StoreUnavailable    the server does not answer, or its connection was lost
        │   └── DurabilityUnknown   a submit was not confirmed in time: it may be stored; names the job
        ├── Overloaded          a manager takes no requests of this class now; `retry_after_s` says when to try again
        │   └── RateLimited     this caller makes too many requests; the others are served
        └── StoreClosed         used after close

Each message says what happened, to which job, and what to do next. `code` is stable, for scripts and the HTTP API.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Self


class MainstayError(Exception):
    """Base of all errors raised by Mainstay."""

    code = "error"


class InvalidInput(MainstayError, ValueError):
    """A value was refused; `field` names it and `rule` says what would be accepted."""

    code = "invalid_input"

    def __init__(self, field: str, rule: str) -> None:
        self.field = field
        self.rule = rule
        super().__init__(f"{field}: {rule}")


class UnknownOption(InvalidInput):
    """An option that does not exist, with the closest one that does."""

    code = "unknown_option"

    def __init__(self, field: str, known: Iterable[str]) -> None:
        names = sorted(known)
        close = difflib.get_close_matches(field, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known options: {', '.join(names)}"
        super().__init__(field, f"unknown option; {hint}")


class PayloadTooLarge(InvalidInput):
    """The payload is bigger than the limit."""

    code = "payload_too_large"


class NoAdapter(InvalidInput):
    """No store adapter handles this URL."""

    code = "no_adapter"


class MissingExtra(InvalidInput):
    """An optional part is required and not installed."""

    code = "missing_extra"


class BadArguments(InvalidInput):
    """The arguments stored with a job do not fit the signature of its task."""

    code = "bad_arguments"


class BadResult(InvalidInput):
    """A task returned another type than it declares. It has run; running it again would not help."""

    code = "bad_result"
    retryable = False


class InvalidTransition(MainstayError):
    """The lifecycle table forbids this move. Nothing was written."""

    code = "invalid_transition"

    def __init__(
        self,
        job_id: str,
        current: str,
        wanted: str,
        *,
        allowed: Iterable[str],
        why: str | None = None,
        story: Iterable[str] = (),
    ) -> None:
        self.job_id = job_id
        self.current = current
        self.wanted = wanted
        self.allowed = tuple(allowed)
        self.why = why
        self.story = tuple(story)
        may = ", ".join(self.allowed) if self.allowed else "nothing"
        lines = [f"job {job_id} cannot go from {current} to {wanted}; {current} may become {may}"]
        if why:
            lines[0] += f" ({why})"
        lines += [f"  {line}" for line in self.story]
        super().__init__("\n".join(lines))


class Conflict(MainstayError):
    """Another writer changed the job first. Read it again and decide again."""

    code = "conflict"


class KeyConflict(Conflict):
    """An idempotency key was used before with different content."""

    code = "key_conflict"


class UniqueClash(Conflict):
    """Another unsettled job holds the same unique key, and the submit has on_clash="refuse"."""

    code = "unique_clash"


class AlreadySubmitted(Conflict):
    """A job that had to be new was submitted before, as `job_id`. Nothing was written."""

    code = "already_submitted"

    def __init__(self, message: str, *, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(message)


class VersionChanged(Conflict):
    """A change required one version of the job, and the job is at another. Nothing was written."""

    code = "version_changed"

    def __init__(self, job_id: str, wanted: int, *, now: int) -> None:
        self.job_id = job_id
        self.wanted = wanted
        self.now = now
        super().__init__(
            f"job {job_id} is at version {now}, but the change requires version {wanted}; nothing was written. "
            "Read it again and decide again"
        )


class JobNotFound(MainstayError, LookupError):
    """No job has this id; it may have been deleted or trimmed."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id}; it may have been deleted or trimmed")


class OutputMissing(MainstayError, LookupError):
    """An output of a unit does not exist, or has no record that it was published."""

    code = "output_missing"

    def __init__(self, unit: str, output: str, *, path: str, why: str) -> None:
        self.unit = unit
        self.output = output
        self.path = path
        super().__init__(f"{unit} has no output {output} ({why}; looked at {path}); run the unit again")


class OutputCorrupt(MainstayError):
    """An output of a unit differs from what was published."""

    code = "output_corrupt"

    def __init__(self, unit: str, output: str, *, path: str, why: str) -> None:
        self.unit = unit
        self.output = output
        self.path = path
        super().__init__(
            f"output {output} of {unit} is corrupt ({why}; at {path}); it counts as missing: run the unit again, "
            "or restore the file from a backup"
        )


class JobFailed(MainstayError):
    """The job has settled without a result; `status` and `reason` say how."""

    code = "job_failed"

    def __init__(
        self, job_id: str, name: str, status: str, reason: str | None, *, error_code: str | None = None
    ) -> None:
        self.job_id = job_id
        self.name = name
        self.status = status
        self.reason = reason
        self.error_code = error_code
        """the stable code of the error that ended it"""
        why = f": {reason}" if reason else ""
        super().__init__(f"job {job_id} ({name}) is {status}{why}; for its story: mainstay jobs explain {job_id}")


class UnknownTask(MainstayError, LookupError):
    """This program has no task of that name."""

    code = "unknown_task"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        names = sorted(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(names) or 'none'}"
        super().__init__(f"there is no task {name!r} in this program; {hint}")


class WaitTimeout(MainstayError, TimeoutError):
    """The job had not settled at the end of the wait. It continues; wait again, or read it later."""

    code = "wait_timeout"


class StaleClaim(MainstayError):
    """The caller no longer holds the job; its write was refused and recorded."""

    code = "stale_claim"


class SessionLost(MainstayError):
    """The session was declared dead (it was silent for too long), closed, or never opened."""

    code = "session_lost"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session} was declared dead, or never opened; open a new one and claim again")


class WorkerNotFound(MainstayError, LookupError):
    """No live worker has this name, and no session has this id; it may have ended."""

    code = "worker_not_found"

    def __init__(self, which: str) -> None:
        self.which = which
        super().__init__(
            f"no live worker or session is called {which[:200]!r}; it may have ended. "
            "mainstay workers list shows the live ones"
        )


class NotLeader(MainstayError):
    """A leader's write arrived after its lease had passed to another session.

    `holder` and `epoch` are those of the current leadership; None: not known, or no session leads.
    """

    code = "not_leader"

    def __init__(self, message: str, *, holder: str | None = None, epoch: int | None = None) -> None:
        self.holder = holder
        self.epoch = epoch
        super().__init__(message)


class RunnerFailed(MainstayError):
    """An outside runner did not answer, or refused. The state of its job is unknown."""

    code = "runner_failed"


class CallFailed(MainstayError):
    """A call of a load test got no response. It is counted under its `kind`, and the virtual user continues.

    Kinds: dns, proxy, connect, refused, tls, timeout (with the part: "read timeout"), closed (of a WebSocket with its
    code: "closed 1011"), protocol, encoding, redirects, and kinds of other protocols.
    """

    code = "call_failed"

    sent = 0
    """bytes that the call has sent"""
    received = 0
    """bytes that the call has received"""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)

    def of_call(self, sent: int, received: int) -> Self:
        """The same failure for one call, with its bytes: the end of a connection ends several calls."""
        failure = type(self)(self.kind, str(self))
        failure.sent, failure.received = sent, received
        return failure


class RequestRefused(MainstayError):
    """A Mainstay server refused a request for a reason that only a server has: not signed in, not allowed, too many
    requests. `status` is that of HTTP, `reason` the code of the server, `field` the wrong field of the request, and
    `retry_after_s` the seconds after which the server takes it; None: the server did not say."""

    code = "request_refused"

    def __init__(
        self, status: int, reason: str, message: str, *, field: str | None = None, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.reason = reason
        self.field = field
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ServerUnreachable(MainstayError, ConnectionError):
    """A Mainstay server did not answer. The request may have been processed."""

    code = "server_unreachable"


class BusError(MainstayError):
    """A message could not be sent over the bus, or was not answered."""

    code = "bus_error"


class NoResponders(BusError):
    """Nothing is subscribed to the subject of a request. No peer has received it."""

    code = "no_responders"

    def __init__(self, subject: str) -> None:
        self.subject = subject
        super().__init__(
            f"nothing is subscribed to {subject}, and no peer has received the request; "
            "the peer that answers it is not connected. Try again later, or ask another peer"
        )


class RequestTimeout(BusError, TimeoutError):
    """A request over the bus was not answered in time. It may have been processed."""

    code = "request_timeout"

    def __init__(self, subject: str, timeout_s: float) -> None:
        self.subject = subject
        self.timeout_s = timeout_s
        super().__init__(
            f"a request to {subject} was not answered within {timeout_s:g} s; it may have been processed. "
            "Send it again if it can be repeated, or check what it did"
        )


class BusClosed(BusError):
    """The client of the bus was used after it was closed, or was closed during a request."""

    code = "bus_closed"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the bus client {name} was closed; connect a new one")


class RoleRefused(MainstayError):
    """The role of the caller does not allow what it asked for. Nothing was done."""

    code = "role_refused"

    def __init__(self, role: str, name: str, request: str, rule: str) -> None:
        self.role = role
        self.name = name
        self.request = request
        super().__init__(f"{role} {name} may not {request}: {rule}")


class WrongCluster(MainstayError):
    """The caller belongs to another cluster or environment. Nothing was done."""

    code = "wrong_cluster"

    def __init__(self, expected: str, given: str) -> None:
        self.expected = expected
        self.given = given
        super().__init__(f"this is the cluster {expected}, not {given}; connect to the right bus, or correct the name")


class VersionSkew(MainstayError):
    """The versions of two programs of a cluster are too far apart. Nothing was done."""

    code = "version_skew"

    def __init__(self, ours: str, theirs: str) -> None:
        self.ours = ours
        self.theirs = theirs
        super().__init__(
            f"version {theirs} cannot work with version {ours}: the same major version and the same or a neighbouring "
            "minor version are needed. Upgrade managers first, then nodes"
        )


class ReplayRefused(MainstayError):
    """A manager got a call under an id that it has seen before, later than its caller repeats a call or with another
    content. Nothing was done."""

    code = "replay_refused"

    def __init__(self, rule: str) -> None:
        super().__init__(f"this call was made before: {rule}; make a new call")


class BundleMissing(MainstayError, LookupError):
    """No bundle or file with this digest is stored; it was not published, or was removed."""

    code = "bundle_missing"

    def __init__(self, digest: str, *, path: str = "") -> None:
        self.digest = digest
        self.path = path
        what = f"file {path} of a bundle" if path else "bundle or file"
        super().__init__(f"the {what} with the digest {digest} is not stored; publish the bundle again")


class BundleCorrupt(MainstayError):
    """The bytes of a file of a bundle do not belong to its digest, or unpack to more than is allowed. They were not
    used."""

    code = "bundle_corrupt"

    def __init__(self, digest: str, why: str, *, path: str = "") -> None:
        self.digest = digest
        self.path = path
        self.why = why
        what = f"file {path} of a bundle" if path else "bundle or file"
        super().__init__(f"the {what} with the digest {digest} was refused: {why}; publish the bundle again")


class StoreError(MainstayError):
    """The engine below the store refused or failed. Nothing half-written remains."""

    code = "store_error"


class TooManyConflicts(Conflict, StoreError):
    """Other writers changed a versioned value first, at every try. Nothing was written.

    It is also a `StoreError`, so that callers who retry when the store is unavailable also retry here.
    """

    code = "too_many_conflicts"

    def __init__(self, key: str, tries: int, *, place: str) -> None:
        self.key = key
        self.tries = tries
        super().__init__(
            f"other writers changed {key} in {place} at each of {tries} tries; nothing was written. "
            "Try again later, or with more tries; if this continues, let fewer writers share this key"
        )


class StoreLocked(StoreError):
    """Another program keeps the database locked."""

    code = "store_locked"


class StoreFull(StoreError):
    """The disk (or the database's own limit) is full."""

    code = "store_full"


class StoreReadOnly(StoreError):
    """The database or its folder cannot be written."""

    code = "store_read_only"


class StoreDenied(StoreError):
    """The storage answers, but refuses the account."""

    code = "store_denied"


class PathBlocked(StoreError):
    """A file or folder that Mainstay did not write is in the place of an output. An operator must move it."""

    code = "path_blocked"
    retryable = False


class StoreDamaged(StoreError):
    """The database file itself is damaged."""

    code = "store_damaged"


class StoreReplaced(StoreError):
    """Another store is now in the place of the one that this process opened. Nothing was written to it."""

    code = "store_replaced"


class RowDamaged(StoreError):
    """One stored row cannot be read; the rest is fine."""

    code = "row_damaged"


class SchemaTooNew(StoreError):
    """The database was written by a newer Mainstay."""

    code = "schema_too_new"


class SchemaTooOld(StoreError):
    """The database has no Mainstay schema, or an older one, and this process may not migrate it."""

    code = "schema_too_old"


class WrongAuditKey(StoreError):
    """The audit trail of this store was sealed with another key, or without one."""

    code = "wrong_audit_key"


class UnsafeEngine(StoreError):
    """The engine version has a known bug that can lose data when used this way."""

    code = "unsafe_engine"


class StoreUnavailable(StoreError):
    """The server of the store could not be reached, or was lost and did not come back in time.

    The operation may have been done. Repeating it is safe.
    """

    code = "store_unavailable"


class ReconnectFailed(MainstayError):
    """A program that follows a run has reached nothing of its cluster for a minute. The run goes on."""

    code = "reconnect_failed"

    def __init__(self, job_id: str, silent_s: float, *, why: BaseException, cancelling: bool) -> None:
        self.id = job_id
        uncancelled = (
            f" The cancel has not reached it: repeat it with mainstay jobs cancel {job_id}." if cancelling else ""
        )
        super().__init__(
            f"nothing of the cluster could be reached for {silent_s:.0f} s ({why}); load test {job_id} goes on there."
            f"{uncancelled} See its numbers with: mainstay load report {job_id}"
        )


class DurabilityUnknown(StoreUnavailable):
    """A submit was not confirmed in time. It has not failed: submit it again with the same key, which gives the same
    job. `id` is that of the job, if this submit made it; `reached` is the level that is known to be reached, or
    empty."""

    code = "durability_unknown"

    def __init__(self, job_id: str, reached: str, why: BaseException) -> None:
        self.id = job_id
        self.reached = reached
        known = f"it is stored (durability {reached})" if reached else "nothing is known of it"
        super().__init__(
            f"job {job_id} may have been submitted: {known}, and no confirmation came in time ({why}). Submit it again "
            "with the same key: that gives the same job, or submits it now"
        )


class Overloaded(StoreError):
    """A manager in front of the store takes no more requests of this class now. Nothing was done.

    It is a `StoreError`, so that callers who try again when the store is away also try again here.
    """

    code = "overloaded"

    def __init__(self, why: str, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        """seconds after which the request may be made again"""
        super().__init__(f"{why}; try again in {retry_after_s:.3g} s")


class RateLimited(Overloaded):
    """This caller makes more requests of a class than one caller may. Nothing was done."""

    code = "rate_limited"

    def __init__(self, what: str, retry_after_s: float) -> None:
        super().__init__(f"too many {what}", retry_after_s)


class StoreClosed(StoreError):
    """The store was used after it was closed."""

    code = "store_closed"
