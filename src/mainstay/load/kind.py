"""The declaration of load tests as a kind of job."""

from ..kinds import Command, Kind, NavigationEntry

#: the name of the rows of slices: the parts of a run on nodes, one for each node
SLICE = "load/slice"

KIND = Kind(
    name="load",
    declarations="mainstay.load.declarations:Loads",
    lead="mainstay.load.fleet.fleet_work:FleetWork",
    submission="mainstay.load.cli.submission:LoadMaker",
    obstacles="mainstay.load.placement.obstacles:obstacles",
    cores="mainstay.load.placement.run_cores:RunCores",
    bundles="mainstay.load.placement.needed_bundles:needed_bundles",
    commands=(
        Command(
            name="load",
            module="mainstay.load.cli.commands",
            help="Run load tests, and report and compare them.",
        ),
    ),
    operations="mainstay.load.web.api:OPERATIONS",
    streams="mainstay.load.web.stream:OPERATIONS",
    pages="mainstay.load.web.dashboard:PAGES",
    navigation=(NavigationEntry(path="/loads", title="Load tests", key="l"),),
    job_page="/loads/{id}",
    templates="mainstay.load.web",
    assets={"report/hover.js": "mainstay.load.report:hover.js", "load/now.js": "mainstay.load.web:now.js"},
)
