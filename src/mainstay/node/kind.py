"""The declaration of node jobs as a kind of job."""

from ..kinds import Kind
from ..model import PLACE_QUEUE

KIND = Kind(
    name="node",
    has_units=True,
    queue=PLACE_QUEUE,
    declarations="mainstay.node.declarations:NodeJobs",
    advice="mainstay.node.advice:advice_of",
    unit_advice="mainstay.node.advice:unit_advice_of",
    obstacles="mainstay.node.obstacles:obstacles",
)
