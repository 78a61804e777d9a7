"""What must hold on any market, under any faults, duplicates and reorderings: random lives of a fleet on the simulated
cloud, driven through the real handler by hypothesis."""
