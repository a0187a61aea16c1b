"""Load tests on the server that all tests of the web package use."""

from tests.web.conftest import server

__all__ = ["server"]
