"""`mainstay load`: the commands of load tests, and how they show a run."""
