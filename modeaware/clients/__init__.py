"""The core that all clients share. The package for each client library is a shell over this core.

``following``: a client's share of the views, and the wait for the first view. ``routes``: the partition of a record, by
a view and a partitioner. ``resize``: the effect of another partition count on keys. ``member``: all decisions of a
member of a consumer group. ``assignment``: the partitions that a member owns. ``starts``: where a member starts to
read. ``settings``: an application's configuration. ``tally``: counters.
"""
