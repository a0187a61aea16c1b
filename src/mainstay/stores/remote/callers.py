"""Who sent a request, from its subject, and where the answer to it may go.

The permissions of the bus guarantee the words of a subject up to the caller's name. A name is one word: with more words
between it and the method, a caller could choose other names that begin with its own. The bus guarantees nothing about
the `reply` of a request, which any text can be in: an answer to a subject that is not an inbox of the caller would be a
message in the name of the manager.
"""

from __future__ import annotations

from ...errors import InvalidInput

ROLES = ("manager", "node", "operator")
_INBOX = "_INBOX"


def caller_of(subject: str, service: str) -> tuple[str, str, str]:
    """Role, name and method of a request. Its subject is CLASS.SERVICE.ROLE.NAME.METHOD, or for one manager
    control.at.MANAGER.SERVICE.ROLE.NAME.METHOD.

    >>> caller_of("control.store.node.n1.beat", "store"), caller_of("control.at.m1.store.node.n1.beat", "store")
    (('node', 'n1', 'beat'), ('node', 'n1', 'beat'))
    >>> caller_of("control.store.node.n1.store.operator.ann.apply", "store")
    Traceback (most recent call last):
    mainstay.errors.InvalidInput: subject: the caller's role, name and method are one word each after 'store'
    """
    words = subject.split(".")
    if words[:2] == ["control", "at"]:
        words = [words[0], *words[3:]]
    # from the front: what a caller chooses comes last
    if len(words) != 5 or words[1] != service:
        raise InvalidInput("subject", f"the caller's role, name and method are one word each after {service!r}")
    return words[2], words[3], words[4]


def may_answer(reply: str | None, role: str, name: str) -> bool:
    """Whether a manager may send the answer there: to an inbox, which is the caller's own if it names a role.

    >>> may_answer("_INBOX.node.n1.x7.3", "node", "n1"), may_answer("_INBOX.node.n2.x7.3", "node", "n1")
    (True, False)
    >>> may_answer("control.node.n2.drain", "node", "n1")
    False
    """
    if reply is None:
        return False
    words = reply.split(".")
    return words[0] == _INBOX and len(words) > 1 and (words[1] not in ROLES or words[1:3] == [role, name])


__all__ = ["ROLES", "caller_of", "may_answer"]
