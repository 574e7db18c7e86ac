"""The command line. `app.py` is the root of the commands; what they ask the engine is in `commands/`, and the rest
formats.
"""
