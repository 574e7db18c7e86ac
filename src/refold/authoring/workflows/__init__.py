"""Workflows written in Python: classes, events, and the plan that comes of them."""
