"""What a controller, an operator and a client may do on a cluster, against what they need (docs/permissions.md).

``needs`` is the table, ``asking`` asks the brokers, ``settings`` and ``endpoints`` look at what is no right,
``report`` puts it together, ``told`` has the words.
"""
