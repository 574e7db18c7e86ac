"""Other systems, in their own words: what they wrote becomes plans and facts."""
