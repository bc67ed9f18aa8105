"""``python -m modeaware.demo``: shrink and replace a live topic on a real Kafka, and account for every record.

Two producers send the flights that left New York City in 2013, keyed by aircraft, to a topic of 12 partitions; a group
of three consumers reads them. Meanwhile the topic is shrunk to 4 partitions, then replaced by a new one of 4, and
deleted. Each client is a thread of this process, and so is the controller.

The audit reads the new topic back with a plain consumer. It relies on each thread's notes: per record the acknowledged
position, and the mode epochs in force before and after ``produce()``. A view listener that is subscribed after the
producers' own gives the lower bound: the producers route by that epoch or a later one. The shared views give the upper
bound: they have an epoch before any listener is called.

Exit status: 0 on success, 1 on a failure, 130 after Ctrl-C.
"""
