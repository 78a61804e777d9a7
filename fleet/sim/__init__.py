"""Drills: a simulated market and cloud in which the fleet's own watchdog lives through days in seconds."""
