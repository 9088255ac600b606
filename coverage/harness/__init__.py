"""Training problems, the processes they run in, and the rule that validates their numbers: under every measurement."""
