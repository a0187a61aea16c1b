"""What the cluster adds to the server. `mainstay.kinds` names this module, since the server is a layer below."""

from ...kinds import NavigationEntry, ServerParts

PARTS = ServerParts(
    name="cluster",
    needs="cluster",
    operations="mainstay.cluster.web.api:OPERATIONS",
    streams="mainstay.cluster.web.stream:OPERATIONS",
    pages="mainstay.cluster.web.dashboard:PAGES",
    navigation=(NavigationEntry(path="/cluster", title="Cluster", key="c"),),
    templates="mainstay.cluster.web",
)
