"""The simulator: processes over one store in virtual time, with faults drawn from a seed, and checks of each step."""
