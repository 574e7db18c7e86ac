"""Refold: durable workflows for Python, as a log of facts, a pure fold and one commit per step."""
