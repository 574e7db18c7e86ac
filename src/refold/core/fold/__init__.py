"""Facts to state: how each kind of fact changes the state of a run.

The fold trusts the log: it never judges, never evaluates expressions and never issues work. `apply.py` has the table of
all kinds of facts; the other files have one subject each.
"""
