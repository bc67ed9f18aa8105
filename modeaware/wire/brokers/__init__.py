"""Any Kafka request to any broker, through kafka-python's codec and connections: nothing is filtered on the way.

librdkafka's admin client hides what a controller must see: share groups, leader epochs of commits, which broker said
what. So this package asks for it. With ``wire.codec`` it is the only place that imports kafka-python. ``client`` is the
connection, ``controller`` asks the controller of the cluster, ``messages`` are the requests, ``settings`` translates
librdkafka's configuration.
"""
