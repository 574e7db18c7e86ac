"""Executors: where the body of a step runs."""
