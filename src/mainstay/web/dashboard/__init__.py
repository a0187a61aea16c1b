"""The dashboard: pages that are rendered here and kept up to date by the live streams.

Layer: web, above the API, whose functions do what its buttons ask for. Start at `routes`; each page is a module and a
template of its name. `static/dashboard.js` is all the script there is beside what is vendored.
"""
