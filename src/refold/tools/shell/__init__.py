"""The tool `shell`: what it is, the program that it runs, and values in the text of NoETL files."""
