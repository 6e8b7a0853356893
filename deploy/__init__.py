"""Places server, actors and learner on machines. Knows their command lines, not their insides."""
