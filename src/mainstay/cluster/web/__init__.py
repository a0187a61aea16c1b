"""The cluster over HTTP: its operations, its live stream, its metrics and its page. `watch` reads the managers."""
