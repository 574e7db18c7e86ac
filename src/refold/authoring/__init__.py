"""Ways to write a workflow, and to read what others wrote; all of them end in the same data."""
