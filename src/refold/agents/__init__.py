"""Agents of Python frameworks as durable bodies: each model request and each tool call is a durable call of the run.

`calls.py` makes and records such calls for any framework; each other file connects one framework, and needs its extra.
"""
