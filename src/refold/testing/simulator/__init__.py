"""The simulator: several processes over one store in virtual time, with faults and oracles."""
