"""The tool `artifact`: files in one folder, and what references stand for."""
