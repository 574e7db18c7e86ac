"""The bench: an engine in memory with virtual time, whose tools can be faked, replayed or held by a test."""
