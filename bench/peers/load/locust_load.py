"""Locust's fast client: a user is a connection."""

from __future__ import annotations

import json

from locust import FastHttpUser, constant, task

from bench.peers.load.work import BASE, KILOBYTE, ORDER, SCENARIO, USER


class _Quick(FastHttpUser):
    abstract = True
    host = BASE
    wait_time = constant(0)


if SCENARIO in ("get", "tls"):

    class Get(_Quick):
        @task
        def get(self) -> None:
            self.client.get("/small.txt")


if SCENARIO == "post":

    class Post(_Quick):
        body = json.dumps(KILOBYTE)

        @task
        def post(self) -> None:
            self.client.post("/json", data=self.body, headers={"Content-Type": "application/json"})


if SCENARIO == "steps":

    class Steps(_Quick):
        @task
        def shop(self) -> None:
            with self.client.post("/json", json=USER, name="login", catch_response=True) as answer:
                login = answer.json()
                if answer.status_code != 200 or not login["ok"]:
                    answer.failure("not logged in")
            headers = {"Authorization": f"Bearer {login['token']}"}
            with self.client.get("/small.txt", headers=headers, name="browse", catch_response=True) as answer:
                if answer.status_code != 200 or "small" not in answer.text:
                    answer.failure("nothing to see")
            with self.client.post("/json", json=ORDER, name="order", catch_response=True) as answer:
                if answer.status_code != 200 or not answer.json()["ok"]:
                    answer.failure("not ordered")
