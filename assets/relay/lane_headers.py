"""How a gateway and a box's lane speak: whose request it is, why it is not taken, and where its wait is told."""

REQUEST = "x-request-id"
# What a gateway says of a request.
CLASS, CALLER, DEADLINE = "x-lane-class", "x-lane-caller", "x-lane-deadline-seconds"
CONTINUED, YES = "x-lane-continued", "yes"  # another target goes on where this one stops
# What a lane says in a busy answer.
BOX, WAIT = "x-lane-box", "x-lane-wait-seconds"
# Where it tells a gateway its wait before anything is asked, and what one request more would add to it.
WAIT_PATH, ANSWER = "/x-lane/wait", "x-lane-answer-seconds"
SLICES = "x-lane-slices"  # in an answer that was sliced at a temperature
INTERACTIVE, BACKGROUND = "interactive", "background"


def plain(request_id: str) -> bool:
    """Whether an id that somebody else chose is taken: it goes into logs and headers as it is."""
    return 8 <= len(request_id) <= 64 and request_id.isascii() and request_id.replace("-", "").isalnum()
