"""What everything stands on: names, errors, an outsider's text, small tools. It imports nothing of the fleet."""
