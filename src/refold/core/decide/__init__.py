"""State to new facts and commands: the rules of the engine.

`rules.py` has the table of all rules, `decision.py` collects what they decide, and the other files have the rules of
one subject each. A rule changes the state only by recording facts.
"""
