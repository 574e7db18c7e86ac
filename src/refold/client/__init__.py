"""Refold from afar: what talks to a server over HTTP instead of opening its database."""
