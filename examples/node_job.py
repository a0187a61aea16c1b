"""A node job: a part on every node, in parallel, then a part at the leader, once.

$ mainstay worker node_job:app --node n1 &
$ python node_job.py

More workers with other names are more nodes.
"""

from mainstay import App, Node, NodeResult

app = App("sqlite:///jobs.db")


@app.node_job(name="compact", quorum="majority", stragglers="60s")
class Compact:
    def local(self, node: Node, table: str) -> int:
        return len(f"{table} on {node.name}")

    def leader(self, results: list[NodeResult], table: str) -> str:
        return f"{table}: " + ", ".join(f"{each.node} compacted {each.result} rows" for each in results)


if __name__ == "__main__":
    job = Compact.submit_sync("events")
    print(job.result_sync(timeout="60s").value)
