"""`mainstay submit`: submit tasks from the command line."""
