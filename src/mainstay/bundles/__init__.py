"""Bundles: the code of a program as files with digests, from the machine that submits to the nodes that run it.

Nothing is pickled: a bundle is a manifest (paths, sizes, SHA-256) and files. Files are stored in parts, each once, at
the address of its digest. The digest of the manifest names the whole. `collect_bundle` makes one, `publish_bundle`
stores it, `BundleService` is the manager's side, `BundleClient` that of its callers, and `BundleCache` the node's.

>>> import asyncio, tempfile
>>> from pathlib import Path
>>> from mainstay.bus import MemoryBusNetwork
>>> from mainstay.outputs import open_blobs
>>> async def main(root, cache):
...     Path(root, "shop.py").write_text("app = 'open'")
...     network, blobs = MemoryBusNetwork(), await open_blobs("memory:")
...     ours = {"cluster": "main", "environment": "test"}
...     operator = BundleClient(network.client("ann"), role="operator", name="ann", **ours)
...     node = BundleClient(network.client("n1"), role="node", name="n1", **ours)
...     async with BundleService(blobs, network.client("m1"), name="m1", **ours):
...         await publish_bundle(operator, collect_bundle("shop:app", root), name="shop")
...         found = await node.find("shop")
...         with await BundleCache(Path(cache), node.fetch).use(found.digest) as bundle:
...             return bundle.manifest.target, (bundle.folder / "shop.py").read_text()
>>> with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as cache:
...     asyncio.run(main(root, cache))
('shop:app', "app = 'open'")
"""

from __future__ import annotations

from .cache import BundleCache, BundleFetch, BundleInUse, PruneResult
from .client import BundleClient
from .collection import Bundle, collect_bundle, collect_code
from .environment import code_environment
from .installed import installed_digest
from .machine_bundles import MachineBundles
from .manifest import MB, PART_BYTES, BundleFile, BundleLimits, BundleManifest, read_manifest
from .publication import (
    RETRIED,
    AskMissing,
    BeginBundle,
    CommitBundle,
    Publication,
    PublishPause,
    PublishProgress,
    PublishResult,
    PublishStep,
    PutParts,
    publication_steps,
    publish_bundle,
)
from .records import BundleListing, BundleRemoval, NameMove, PublishedBundle, check_bundle_name, is_digest_start
from .removal import BundlesInUse, no_bundles_in_use, prune_bundles, remove_bundle
from .service import BundleService
from .storage import PACKED_BYTES, BundleStorage, bundle_address

__all__ = [
    "MB",
    "PACKED_BYTES",
    "PART_BYTES",
    "RETRIED",
    "AskMissing",
    "BeginBundle",
    "Bundle",
    "BundleCache",
    "BundleClient",
    "BundleFetch",
    "BundleFile",
    "BundleInUse",
    "BundleLimits",
    "BundleListing",
    "BundleManifest",
    "BundleRemoval",
    "BundleService",
    "BundleStorage",
    "BundlesInUse",
    "CommitBundle",
    "MachineBundles",
    "NameMove",
    "PruneResult",
    "Publication",
    "PublishPause",
    "PublishProgress",
    "PublishResult",
    "PublishStep",
    "PublishedBundle",
    "PutParts",
    "bundle_address",
    "check_bundle_name",
    "code_environment",
    "collect_bundle",
    "collect_code",
    "installed_digest",
    "is_digest_start",
    "no_bundles_in_use",
    "prune_bundles",
    "publication_steps",
    "publish_bundle",
    "read_manifest",
    "remove_bundle",
]
