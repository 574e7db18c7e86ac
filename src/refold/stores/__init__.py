"""Stores: interchangeable keepers of logs and their projections; all pass one contract suite."""
