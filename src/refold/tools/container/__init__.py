"""The tool `container`: a program in a container of its own."""
