"""When a group grows and shrinks by its lanes' wait: the thresholds, for the alarms and for the drills alike."""

# Expected by who comes now, the mean over the boxes. At the fleet's 9.4 s a request, a box that is busy for three
# quarters of the time comes to it; from 30 s on no streaming caller of a gateway is let in.
GROW_WAIT_SECONDS = 15
GROW_MINUTES = 3  # running: a burst is no load, and the first minute that says otherwise puts the alarm out
# Boxes busy for less than a third: without one of two the other is busy for less than two, and waits for 7 s.
SHRINK_WAIT_SECONDS = 2
SHRINK_MINUTES = 15  # the mean over them, and the pause between two boxes: a boot takes a third of it
