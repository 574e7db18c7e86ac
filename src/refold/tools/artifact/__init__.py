"""The tool `artifact`: files in one folder, and the data that references refer to."""
