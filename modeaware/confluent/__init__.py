"""confluent_kafka's clients, aware of partition modes: the same classes, methods and settings.

``producer`` routes records through ``router``. ``consumer`` reads through ``group``, whose ``member`` decides which
partitions of the assignment are read, and ``partitions``, which pauses, seeks and resumes. ``retarget`` keeps
``produce`` and ``poll`` librdkafka's own while nothing has to be done. ``admin`` sends commands to the controller.
"""
