"""What `fleetctl` does: read the fleet, check what would fail, command the watchdog, review and deploy a change."""
