"""Bundles: the code of a program as files with digests, from the machine that submits to the nodes that run it.

Nothing is pickled: a bundle is a manifest (paths, sizes, SHA-256) and files, each stored once at the address of its
digest. The digest of the manifest names the whole. `collect_bundle` makes one, `publish_bundle` or `BundleClient`
stores it, `BundleService` is the manager's side and `BundleCache` the node's.

>>> import asyncio, tempfile
>>> from pathlib import Path
>>> from mainstay.bus import MemoryBusNetwork
>>> from mainstay.outputs import open_blobs
>>> async def main(root, cache):
...     Path(root, "shop.py").write_text("app = 'open'")
...     network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
...     digest = await publish_bundle(blobs, collect_bundle("shop:app", root))
...     ours = {"cluster": "main", "environment": "test"}
...     node = BundleClient(network.client("n1"), role="node", name="n1", **ours)
...     async with BundleService(blobs, network.client("m1"), name="m1", **ours):
...         with await BundleCache(Path(cache), node.fetch).use(digest) as bundle:
...             return bundle.manifest.target, (bundle.folder / "shop.py").read_text()
>>> with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as cache:
...     asyncio.run(main(root, cache))
('shop:app', "app = 'open'")
"""

from __future__ import annotations

from .cache import BundleCache, BundleFetch, BundleInUse, PruneResult
from .client import BundleClient
from .collection import Bundle, collect_bundle
from .installed import installed_digest
from .manifest import BundleFile, BundleLimits, BundleManifest, read_manifest
from .messages import PART_BYTES, BundlePart
from .service import BundleService
from .storage import bundle_address, publish_bundle

__all__ = [
    "PART_BYTES",
    "Bundle",
    "BundleCache",
    "BundleClient",
    "BundleFetch",
    "BundleFile",
    "BundleInUse",
    "BundleLimits",
    "BundleManifest",
    "BundlePart",
    "BundleService",
    "PruneResult",
    "bundle_address",
    "collect_bundle",
    "installed_digest",
    "publish_bundle",
    "read_manifest",
]
