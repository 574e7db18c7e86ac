"""The pure heart: facts, state, fold, decide. No clock, no I/O, no chance of its own."""
