"""The controller: keeps the mode log, takes admin commands, and carries retired partitions to their end."""
