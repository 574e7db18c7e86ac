"""What tests of Refold and of its users run on: simulated processes, time and chance."""
