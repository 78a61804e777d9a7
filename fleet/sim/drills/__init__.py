"""One drill: a market or a recorded history, lived through by one policy."""
