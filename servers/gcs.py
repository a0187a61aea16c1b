"""A small server that speaks as much of Google Cloud Storage's XML interface as conditional writes need.

obstore speaks the XML interface. The emulator on PyPI, gcp-storage-emulator (2026.7), takes PUT and GET of it, but it
reads no precondition and has no list. No other was tried.

This one honours `x-goog-if-generation-match` on PUT and DELETE (0: there must be none), gives every write a generation
of its own, and lists in the order of names, with `start-after`, pages, prefixes and delimiters. Objects are in a SQLite
file: they stay over a stop. It asks for no credentials, knows no metadata, no access rules and no parts of uploads; PUT
on a bucket's name makes it.

Run as: python -m servers.gcs PORT FILE.
"""

from __future__ import annotations

import hashlib
import signal
import sqlite3
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen
from xml.sax.saxutils import escape

from .server import OneProcess, Process, free_port

BUCKET = "registry"
_SCHEMA = """
PRAGMA synchronous = OFF; -- a crash of the machine is no part of any test
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS objects (generation INTEGER PRIMARY KEY AUTOINCREMENT, bucket TEXT, name TEXT, body BLOB,
    UNIQUE (bucket, name));
"""
_WHEN = "2026-01-01T00:00:00.000Z"
_PAGE = 1000


class Gcs(OneProcess):
    """The server described above. The port stays the same over `stop` and `start`."""

    version = "1"

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.port = port or free_port()
        command = [sys.executable, "-m", "servers.gcs", str(self.port), str(folder / "gcs.db")]
        root = Path(__file__).parents[1]
        self._process = Process(command, folder / "gcs.log", self.answers, ends_on=signal.SIGTERM, cwd=root)
        with urlopen(Request(f"{self.url()}/{BUCKET}", method="PUT", data=b""), timeout=10):
            pass

    def database(self, name: str) -> str:
        return gcs_url(self.url(), name)

    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def gcs_url(server: str, prefix: str) -> str:
    return f"gs://{BUCKET}/{prefix}?endpoint={server}&allow_http=on&token=any"


class _Objects:
    def __init__(self, file: str) -> None:
        self._turn = threading.Lock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.create_function("md5", 1, _md5, deterministic=True)
        self._db.executescript(_SCHEMA)

    def has_bucket(self, bucket: str) -> bool:
        with self._turn:
            return self._db.execute("SELECT 1 FROM buckets WHERE name = ?", [bucket]).fetchone() is not None

    def make_bucket(self, bucket: str) -> None:
        with self._turn:
            self._db.execute("INSERT OR IGNORE INTO buckets VALUES (?)", [bucket])

    def get(self, bucket: str, name: str) -> tuple[int, bytes] | None:
        with self._turn:
            found: tuple[int, bytes] | None = self._db.execute(
                "SELECT generation, body FROM objects WHERE bucket = ? AND name = ?", [bucket, name]
            ).fetchone()
            return found

    def change(self, bucket: str, name: str, body: bytes | None, wanted: int | None) -> int | None:
        """Write, or remove with None, if its generation is the one that is wanted; None: it is another."""
        with self._turn:
            key = [bucket, name]
            found = self._db.execute("SELECT generation FROM objects WHERE bucket = ? AND name = ?", key).fetchone()
            there = found[0] if found else 0
            if wanted is not None and wanted != there:
                return None
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM objects WHERE bucket = ? AND name = ?", key)
            if body is not None:
                insert = "INSERT INTO objects (bucket, name, body) VALUES (?, ?, ?) RETURNING generation"
                there = self._db.execute(insert, [*key, body]).fetchone()[0]
            self._db.execute("COMMIT")
            return int(there)

    def names(self, bucket: str, prefix: str, after: str, limit: int) -> list[tuple[str, int, int, str]]:
        with self._turn:
            return self._db.execute(
                "SELECT name, generation, length(body), md5(body) FROM objects WHERE bucket = ? AND name > ? "
                "AND substr(name, 1, ?) = ? ORDER BY name LIMIT ?",
                [bucket, after, len(prefix), prefix, limit],
            ).fetchall()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written one after the other
    objects: _Objects

    def do_PUT(self) -> None:  # its name is http.server's
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        bucket, name = self._names()
        if not name:
            self.objects.make_bucket(bucket)
            self._say(200)
        elif self._bucket_is_there(bucket):
            self._changed(self.objects.change(bucket, name, body, self._wanted()), body)

    def do_DELETE(self) -> None:
        bucket, name = self._names()
        if self._bucket_is_there(bucket):
            if self.objects.get(bucket, name) is None:
                self._fail(404, "NoSuchKey")
            else:
                self._changed(self.objects.change(bucket, name, None, self._wanted()), None)

    def do_GET(self) -> None:
        bucket, name = self._names()
        if not self._bucket_is_there(bucket):
            return
        if not name:
            self._list(bucket)
        elif found := self.objects.get(bucket, name):
            self._say(200, found[1], **_told(*found))
        else:
            self._fail(404, "NoSuchKey")

    do_HEAD = do_GET  # noqa: N815  # the name that http.server looks for

    def log_message(self, *_: object) -> None:
        """Nobody reads them."""

    def _names(self) -> tuple[str, str]:
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        return unquote(bucket), unquote(name)

    def _wanted(self) -> int | None:
        wanted = self.headers.get("x-goog-if-generation-match")
        return None if wanted is None else int(wanted)

    def _bucket_is_there(self, bucket: str) -> bool:
        there = self.objects.has_bucket(bucket)
        if not there:
            self._fail(404, "NoSuchBucket")
        return there

    def _changed(self, generation: int | None, body: bytes | None) -> None:
        if generation is None:
            self._fail(412, "PreconditionFailed")
        elif body is None:
            self._say(204)
        else:
            self._say(200, **_told(generation, body))

    def _list(self, bucket: str) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        limit = min(int(asked.get("max-keys", _PAGE)), _PAGE)
        after = max(asked.get("start-after", ""), asked.get("continuation-token", ""))
        prefix = asked.get("prefix", "")
        found = self.objects.names(bucket, prefix, after, limit + 1)
        page, more = found[:limit], len(found) > limit
        folders = ""
        if delimiter := asked.get("delimiter"):
            below = [row for row in page if delimiter in row[0][len(prefix) :]]
            page_names = sorted({prefix + row[0][len(prefix) :].partition(delimiter)[0] + delimiter for row in below})
            folders = "".join(
                f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in page_names
            )
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Generation>{generation}</Generation><Size>{size}</Size>"
            f'<LastModified>{_WHEN}</LastModified><ETag>"{tag}"</ETag></Contents>'
            for name, generation, size, tag in page
            if not (delimiter and delimiter in name[len(prefix) :])
        )
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
        text = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}{folders}"
        self._say(200, f"<ListBucketResult>{text}</ListBucketResult>".encode())

    def _fail(self, status: int, code: str) -> None:
        self._say(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def _told(generation: int, body: bytes) -> dict[str, str]:
    return {
        "ETag": f'"{_md5(body)}"',
        "x_goog_generation": str(generation),
        "Last_Modified": formatdate(0, usegmt=True),
    }


def main() -> None:
    _Handler.objects = _Objects(sys.argv[2])
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()


if __name__ == "__main__":
    main()
