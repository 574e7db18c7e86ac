"""A bench for tests of workflows: virtual time, fakes, recordings."""
