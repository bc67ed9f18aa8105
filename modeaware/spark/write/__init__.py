"""Writing to Kafka from Spark, to writable partitions only."""
