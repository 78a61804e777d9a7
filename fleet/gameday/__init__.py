"""A game day: the fleet through a bad day on purpose, under load, with a receipt for each step.

`scenario` is the day, step by step, over verbs that exist anyway; a `stage` is where it is played (the embedded AWS, or
a live account); `load` replays prompts meanwhile; `report` writes what was seen.
"""
