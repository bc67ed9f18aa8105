"""confluent_kafka's clients, aware of partition modes: the same classes, methods and settings.

``producer`` routes records through ``router``. ``consumer`` reads through ``group``, which assigns, pauses, seeks and
resumes as :mod:`modeaware.clients.member` decides. With ``retarget``, ``produce`` and ``poll`` are librdkafka's own
methods while no work waits. ``admin`` sends commands to the controller.
"""
