"""The judge on trial: what its grades catch of planted faults, and what they say of legitimate runs."""
