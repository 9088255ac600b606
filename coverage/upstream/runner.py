"""Runs the scripts of faults/, each in a process of its own, and says which faults are still there."""
