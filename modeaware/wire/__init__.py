"""Kafka's wire protocol, as much as the controller's listener and the admin client need.

``codec`` is the one place that imports kafka-python (for its codec alone); ``frames`` and the conversions in
``messages`` do no IO; ``client`` is a blocking client for one request at a time.
"""
