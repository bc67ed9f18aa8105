"""confluent_kafka's clients, aware of partition modes: the same classes, methods and settings."""
