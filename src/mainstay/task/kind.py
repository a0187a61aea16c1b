"""The declaration of tasks as a kind of job."""

from ..kinds import Command, Kind

KIND = Kind(
    name="task",
    declarations="mainstay.task.declarations:Tasks",
    commands=(
        Command(
            name="submit",
            module="mainstay.task.cli.submit",
            help="Submit a job of a task, a run of a load test or a node job of the app, and print its id.",
        ),
    ),
)
