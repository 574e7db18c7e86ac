"""The tool `shell`: its description, the tool, and values in the texts of NoETL files."""
