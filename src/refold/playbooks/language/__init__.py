"""The tables of keys: what may be written where, with the sentence that explains each key."""
