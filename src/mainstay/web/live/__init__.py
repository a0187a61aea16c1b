"""What changes while one looks: snapshots of the stores, and streams of them and of jobs. Start at `hub`."""
