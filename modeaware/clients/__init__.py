"""The core that every client flavour shares; the packages of the client libraries are shells over it.

``following``: the client's share of the views, and the wait for the first one. ``routes``: the partition of a record,
by a view and a partitioner. ``starts``: where a consumer starts to read. ``assignment``: which partitions a member of a
group reads. ``resize``: the effect of a change of the partition count on keys. ``settings``: an application's
configuration. ``tally``: counters.
"""
