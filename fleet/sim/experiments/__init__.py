"""Many drills: comparisons, sweeps, bounds and their pictures."""
