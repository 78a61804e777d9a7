"""Who decides in a drill: the watchdog's own policies, and rivals."""
