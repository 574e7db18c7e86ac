"""Doorbells: ways to say that work has come."""
