"""The report of a batch: as data, as HTML, and its heat map."""
