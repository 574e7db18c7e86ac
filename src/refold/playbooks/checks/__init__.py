"""Checks of a whole playbook after it was read: names, arcs, the graph, templates and secrets."""
