"""HTTP/2, over TLS and with prior knowledge over plain TCP: the client of one virtual user.

`HTTP2Client` has the calls, with the options and responses of HTTP/1.1; a user has one connection to each origin, which
carries all its calls at once. `frames` and `fields` have the format, `connection` the rules, `session` the calls.

The package h2, which the target uses, does not fit: it ends a connection at the first GOAWAY, even for calls that the
server still answers (python-hyper/h2#1181), and servers send one every few hundred requests; and it spends more time on
each request than all the rest of a call takes.
"""

from __future__ import annotations

from .response import HTTP2Response
from .session import HTTP2Client

__all__ = ["HTTP2Client", "HTTP2Response"]
