"""`mainstay node`: the commands of node jobs and nodes."""
