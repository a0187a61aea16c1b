"""`mainstay batch`: the commands of studies, and how they show a run."""
