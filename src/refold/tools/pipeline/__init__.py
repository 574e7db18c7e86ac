"""The tool that runs a list of tools in one step, task by task, with rules."""
