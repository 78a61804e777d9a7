"""`fleetctl`: arguments in, one call into the packages below, a table or JSON out."""
