"""The commands of a cluster: `mainstay cluster`, `mainstay manager`, `mainstay node join`."""
