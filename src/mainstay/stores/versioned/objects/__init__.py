"""A versioned store in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob; through obstore.

Every object is an envelope: four bytes that mark its kind, sixteen random bytes, and the value. The version is the
object's ETag (S3, Azure) or generation (Google). An ETag of S3 is a hash of the content; no two envelopes are alike, so
no ETag is reused.

Deletes: not all services have conditional deletes, and obstore uses none. So a value is deleted by replacing it, under
the same condition, with an envelope of 20 bytes. It reads as absent, is left out of lists (by its size: any other is
longer) and is replaced when the key is created again. It must not be removed while the store is in use: a program that
creates the key in that moment would lose its value. S3 can remove it safely by a lifecycle rule for objects smaller
than 21 bytes and older than a day; elsewhere it stays until the store is no longer used.
"""

from .bucket_setup import prepare
from .store import open_objects

__all__ = ["open_objects", "prepare"]
