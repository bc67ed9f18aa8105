"""Measures what modeaware costs, beside plain confluent_kafka in the same run on a real broker: ``make bench``."""
