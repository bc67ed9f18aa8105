"""What a controller, an operator and a client may do on a cluster, against what they need (docs/permissions.md).

``needs`` is the table, ``asking`` asks the brokers, ``report`` adds what is no right, ``told`` has the words.
"""
