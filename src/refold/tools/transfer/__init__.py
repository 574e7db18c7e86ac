"""The tool `transfer`: rows from one place to another."""
