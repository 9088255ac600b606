"""Training problems, the processes they run in, and the rule that judges their numbers: under every measurement."""
