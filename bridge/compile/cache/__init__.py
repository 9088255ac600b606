"""Compiled graphs kept on disk: what an entry is keyed by, how it is written, linked and found."""
