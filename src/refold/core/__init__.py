"""The pure core: data of plans, facts, commands, outcomes and state, and the functions between them.

`fold/` turns facts into state, `decide/` turns state into new facts and commands, and `read/` turns state into what
expressions and people read. `fold/` imports neither of the other rooms, and `read/` does not import `decide/`. Nothing
here asks the clock, the disk or chance: they are arguments.
"""
