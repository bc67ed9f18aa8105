"""The controller: keeps the mode log, takes admin commands, and retires partitions to their end."""
