"""A small kind of job, as another distribution would add it: it has one part of everything that a kind may have."""

from mainstay.kinds import Command, Kind, NavigationEntry

KIND = Kind(
    name="survey",
    declarations="survey.jobs:Surveys",
    advice="survey.jobs:advice",
    commands=(Command(name="survey", module="survey.cli", help="Submit a survey."),),
    operations="survey.web:OPERATIONS",
    pages="survey.web:PAGES",
    navigation=(NavigationEntry(path="/surveys", title="Surveys", key="y"),),
    panels="survey.web:PANELS",
    templates="survey",
)
