"""Relax module -> executable: targets, passes, kernel schedules."""
