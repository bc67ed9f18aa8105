"""``python -m modeaware.demo``: shrink and replace a live topic on a real Kafka, and account for every record.

Two producers send the flights that left New York City in 2013, keyed by aircraft, to a topic of 12 partitions; a group
of three consumers reads them. Meanwhile the topic is shrunk to 4 partitions, then replaced by a new one of 4, and
deleted. Each client is a thread of this process, and so is the controller.

The audit reads the new topic back with a plain consumer. It compares each record with the producer's notes: the
acknowledged position, and bounds of the mode epoch by which ``produce()`` chose the partition. The lower bound is read
before ``produce()``, from a view listener that is called after the producers' own listeners. The upper bound is read
after ``produce()``, from the shared views, which have an epoch before any listener is called.

Exit status: 0 on success, 1 on a failure, 130 after Ctrl-C.
"""
