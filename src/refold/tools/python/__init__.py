"""The tool `python`: code in a process of its own."""
