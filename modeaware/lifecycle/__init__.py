"""The life of a topic's partitions, decided without IO or clock: facts and commands in, records and effects out."""
