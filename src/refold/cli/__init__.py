"""The command line: what people type, what they see, and what scripts read."""
