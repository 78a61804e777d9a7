"""The relay: one chat completion from an engine to whoever asked, event by event, inside its deadlines.

Gateway and box share it: written for Python 3.9, it knows nothing of callers, keys or tiers.

  sse           bytes to server-sent events and back
  chat          what an event of a chat completion means
  upstream      the connection to a target, with its deadlines
  bodies        how much memory large requests may take
  refusal       what is not taken, and how that is told
  lane_headers  what a gateway and a box's lane tell each other
"""
