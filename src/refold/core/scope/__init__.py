"""What templates can read of a run: its scope, and the values that were loaded for it."""
