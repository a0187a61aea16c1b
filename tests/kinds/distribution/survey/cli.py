"""`mainstay survey`."""

import asyncio

import typer

from mainstay.control import Control
from mainstay.stores import open_store

group = typer.Typer(help="Submit a survey.", no_args_is_help=True)


@group.callback()
def surveys() -> None:
    """Submit a survey."""


@group.command()
def ask(name: str, question: str, store: str = typer.Option(..., "--store")) -> None:
    """Submit one question."""

    async def submit() -> str:
        opened = await open_store(store)
        try:
            made = await Control(opened).jobs.submit(name, {"question": question}, kind="survey", queue="surveys")
        finally:
            await opened.close()
        return made.id

    typer.echo(asyncio.run(submit()))


def register(app: typer.Typer) -> None:
    app.add_typer(group, name="survey")
