"""Tools: what a step can call. Each kind has a room with `info.py`, its description and checks, and `tool.py`."""
