"""The tool `http`: the request, the guarded connection, the answer."""
