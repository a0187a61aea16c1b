"""The declaration of batches as a kind of job."""

from ..kinds import Command, Kind, NavigationEntry

KIND = Kind(
    name="batch",
    has_units=True,
    declarations="mainstay.batch.declarations:Batches",
    advice="mainstay.batch.advice:advice_of",
    commands=(
        Command(
            name="batch",
            module="mainstay.batch.cli.commands",
            help="Run studies: many units, done when their outputs exist.",
        ),
    ),
    job_commands=("mainstay.batch.cli.jobs", "mainstay.batch.cli.report", "mainstay.batch.cli.sync"),
    operations="mainstay.batch.web.api:OPERATIONS",
    masked_value="mainstay.batch.web.masks:masked_value",
    pages="mainstay.batch.web.dashboard:PAGES",
    navigation=(NavigationEntry(path="/batches", title="Batches", key="a"),),
    panels="mainstay.batch.web.job_page:PANELS",
    actions="mainstay.batch.web.job_page:actions",
    dialogs="batch/dialogs.html",
    templates="mainstay.batch.web",
)
