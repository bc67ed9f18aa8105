"""Reading: batch and streaming sources of Spark's Kafka connector, and the progress of streaming queries."""
