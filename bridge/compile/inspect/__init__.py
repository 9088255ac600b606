"""What became of a graph: listings of each stage, and counts of operations."""
