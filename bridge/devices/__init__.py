"""What differs from one device to another."""
