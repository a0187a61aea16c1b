"""The declaration of node jobs as a kind of job."""

from ..kinds import Command, Kind, NavigationEntry
from ..model import PLACE_QUEUE

KIND = Kind(
    name="node",
    has_units=True,
    queue=PLACE_QUEUE,
    declarations="mainstay.node.declarations:NodeJobs",
    advice="mainstay.node.advice:advice_of",
    unit_advice="mainstay.node.advice:unit_advice_of",
    obstacles="mainstay.node.obstacles:obstacles",
    commands=(
        Command(
            name="node",
            module="mainstay.node.cli.commands",
            help="See nodes and node jobs, and run a job again on some nodes.",
        ),
    ),
    submission="mainstay.node.cli.submission:NodeJobMaker",
    operations="mainstay.node.web.api:OPERATIONS",
    masked_value="mainstay.node.web.masks:masked_value",
    pages="mainstay.node.web.dashboard:PAGES",
    navigation=(NavigationEntry(path="/nodes", title="Nodes", key="n"),),
    panels="mainstay.node.web.dashboard:PANELS",
    dialogs="node/dialogs.html",
    templates="mainstay.node.web",
)
