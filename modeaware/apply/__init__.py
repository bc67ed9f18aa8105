"""Topics as a file declares them: the file, and the steps from a topic as it is to the declared one. Pure."""
