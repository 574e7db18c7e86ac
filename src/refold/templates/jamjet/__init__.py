"""The expression language of JamJet files: conditions, what nodes give, and the state that their patches add up to."""
