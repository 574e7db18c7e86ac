"""Checks of a whole playbook, after it was read: names, arcs, templates, secrets."""
