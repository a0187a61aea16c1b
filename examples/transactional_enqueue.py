"""Transactional enqueue: an order and the job that confirms it are committed together, or neither is.

$ export MAINSTAY_STORE=postgresql://app@localhost/shop
$ mainstay store migrate
$ mainstay worker transactional_enqueue:app &
$ python transactional_enqueue.py
"""

import os

import psycopg

from mainstay import App
from mainstay.errors import JobNotFound

URL = os.environ["MAINSTAY_STORE"]
app = App(URL)


@app.task(name="confirm")
async def confirm(order: int) -> str:
    return f"confirmed order {order}"


def main() -> None:
    with psycopg.connect(URL, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, item text)")
        with connection.transaction():
            connection.execute("INSERT INTO orders (item) VALUES ('lamp')")
            kept = confirm.within(connection).submit_sync(1)
        with connection.transaction():
            connection.execute("INSERT INTO orders (item) VALUES ('sofa')")
            lost = confirm.within(connection).submit_sync(2)
            raise psycopg.Rollback  # out of stock: the order and its job are taken back
    print(kept.result_sync(timeout="60s"))
    try:
        lost.status_sync()
    except JobNotFound:
        print("order 2 was rolled back, and its job was never submitted")


if __name__ == "__main__":
    main()
