"""Pipelines of workflows: stages, races and loops, compiled to a plan."""
