"""The controller: keeps the mode log, executes admin commands, and takes retired partitions through their phases."""
