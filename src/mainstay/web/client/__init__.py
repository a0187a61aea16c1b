"""The API from another program: `Client` and `AsyncClient`. Needs the extra `mainstay[client]`, and no store."""
