"""Reports of load tests: for terminals, browsers, spreadsheets and build servers; and comparisons of two runs.

Every report is made from a `Summary` alone (histograms for other tools: from the windows), so it can be made again from
the recording of a run. Start from `text.show_summary`, `page.load_html`, `files.FileOutput`,
`recorded.read_result` and `compare.compare`.
"""
