"""The cluster: managers, nodes that join over a bus, and who is alive.

Layer: above app. A manager holds the store, answers nodes over the bus and competes for the leads; a node is a worker
that reaches the store through a manager. Start from `status.ClusterStatus`.
"""
