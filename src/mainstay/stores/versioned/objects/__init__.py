"""A versioned store in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob; through obstore.

Every object is an envelope: four bytes that say what it is, sixteen that no other write has, and the value. The version
is the object's ETag (S3, Azure) or generation (Google). An ETag of S3 is a hash of the content; as no content is
written twice, no ETag comes back either.

Removing: not all services remove under a condition, and obstore asks none to. So a value is removed by replacing it,
under the same condition, with an envelope of 20 bytes that says so. It reads as absent, is left out of lists (by its
size: any other is longer) and is replaced when the key is made again. It must not be removed while somebody writes:
one who makes the key anew in that moment would lose it. S3 can do it safely by itself, with a lifecycle rule for
objects smaller than 21 bytes and older than a day; elsewhere they stay, until nobody uses the store.
"""

from .bucket_setup import prepare
from .factory import open_objects

__all__ = ["open_objects", "prepare"]
