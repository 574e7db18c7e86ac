"""The tool `agent`: hands a prompt to a bound tool, and reads and checks the reply."""
