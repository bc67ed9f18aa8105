"""confluent_kafka's clients, aware of partition modes: the same classes, methods and settings.

``producer`` routes through ``router``. ``consumer`` reads through ``group``, which explains why a consumer does or does
not read a partition that its group gave to it, and ``partitions``, which pauses, seeks and resumes. ``retarget`` keeps
``produce`` and ``poll`` librdkafka's own while nothing has to be done. ``admin`` sends commands to the controller.
"""
