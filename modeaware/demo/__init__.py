"""``python -m modeaware.demo``: shrinks and grows a live topic on a real Kafka, and counts every record afterwards."""
