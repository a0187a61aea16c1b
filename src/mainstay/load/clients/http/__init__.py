"""HTTP/1.1, with and without TLS: the client of one virtual user.

`HTTPClient` has the calls, `HTTPResponse` is what they return. A call's way: `session` reads what it is given into a
`Call` (`calls`, `options`), takes or opens a `Connection` (`pool`, `opening`), which sends it and reads the answer
(`heads`, `bodies`); cookies and redirects come back to the session.
"""

from __future__ import annotations

from .heads import Fields
from .response import HTTPResponse
from .session import HTTPClient
from .sse import Event, Events

__all__ = ["Event", "Events", "Fields", "HTTPClient", "HTTPResponse"]
