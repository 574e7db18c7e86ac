"""State to new facts and commands: the rules, one subject a file. Nothing here changes state."""
