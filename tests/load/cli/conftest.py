"""The commands of load tests run in the same shell as all others."""

from tests.cli.conftest import shell

__all__ = ["shell"]
