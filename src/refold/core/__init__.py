"""The pure core: plans and their graph, facts, commands, outcomes and state. Nothing here asks the clock, the disk or
chance.
"""
