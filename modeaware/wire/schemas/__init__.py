"""Message schemas that kafka-python does not have, in the format of Kafka's own (JSON with comments)."""
