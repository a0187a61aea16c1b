"""What is made of a load test that is over: for terminals, browsers, spreadsheets, build servers; and two runs side by
side.

Everything here is made from a `Summary` alone (the histograms for other tools: from the windows), so it can be made
again from what a run recorded. Start from `text.show_summary`, `page.load_html`, `files.output_for`,
`recorded.read_result` and `compare.compare`.
"""
