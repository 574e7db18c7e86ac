"""The HTTP server of `refold serve`: routes as one table, access to them, and streams.

It computes nothing that the command line does not use too: rows, words and reasons come from `queries` and `core/read`.
starlette and uvicorn are imported here and nowhere else.
"""
