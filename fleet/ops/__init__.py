"""What `fleetctl` does: read the fleet, check what would fail, press the buttons, review a change, hold a game day."""
