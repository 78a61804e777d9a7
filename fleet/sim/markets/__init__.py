"""Spot markets: what sells when, read from files or drawn from a seed."""
