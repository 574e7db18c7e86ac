"""The tool behind a list of tools in one step."""
