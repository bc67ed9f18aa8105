"""Message schemas Kafka does not have, in the format of Kafka's own (JSON with comments)."""
