"""confluent_kafka's clients, aware of partition modes: the same classes, methods and settings.

``producer`` routes records through ``router``. ``consumer`` reads through ``group``, which assigns, pauses, seeks and
resumes as :mod:`modeaware.clients.member` decides. ``retarget`` makes ``produce`` and ``poll`` librdkafka's own methods
while no code of ours has to run. ``admin`` sends commands to the controller.

Terms: a *view* has the modes of one topic (:mod:`modeaware.topic_view`). The *stock* class or method is the one that
ours replaces: confluent_kafka's own, or one that a tracer has put over it.
"""
