"""The headers by which a gateway and a box's lane speak: whose request it is, and why it is not taken."""

REQUEST = "x-request-id"
# What a gateway says of a request.
CLASS, CALLER, DEADLINE = "x-lane-class", "x-lane-caller", "x-lane-deadline-seconds"
CONTINUED, YES = "x-lane-continued", "yes"  # another target goes on where this one stops
# What a lane says in a busy answer.
BOX, WAIT = "x-lane-box", "x-lane-wait-seconds"
SLICES = "x-lane-slices"  # in an answer that was sliced at a temperature
INTERACTIVE, BACKGROUND = "interactive", "background"
