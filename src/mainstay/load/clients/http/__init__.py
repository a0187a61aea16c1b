"""HTTP/1.1, with and without TLS: the client of one virtual user.

`HTTPClient` has the calls, and they return an `HTTPResponse`. The path of a call: `session` encodes it as an `HTTPCall`
(`calls`, `options`), takes or opens an `HTTP1Connection` (`pool`, `connect`), which sends it and reads the response
(`heads`, `bodies`). The session handles cookies and redirects.
"""

from __future__ import annotations

from ..events import ServerSentEvent
from .heads import Fields
from .response import HTTPResponse
from .session import HTTPClient
from .sse import Events

__all__ = ["Events", "Fields", "HTTPClient", "HTTPResponse", "ServerSentEvent"]
