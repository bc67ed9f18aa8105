"""The core that every client flavour shares; the packages of the client libraries are shells over it.

``following``: the client's share of the views, and the wait for the first one. ``routes``: view and partitioner give
the choice of a producer. ``starts``: where a consumer starts to read. ``assignment``: which partitions a member of a
group reads. ``resize``: what a change of the partition count means for keys. ``settings``: what an application's
configuration says. ``tally``: counters.
"""
