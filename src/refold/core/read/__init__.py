"""State to what expressions and people read.

The scopes of expressions with the values that were loaded for them; and summaries, progress, items, gates, reasons for
waiting, texts of facts and dead letters. Nothing here changes the state or records facts.
"""
