"""Files of JamJet: five forms, read into one draft of a graph, which becomes a plan. Conditions are in `templates`."""
