"""`mainstay load`: the commands of load tests, and their displays."""
