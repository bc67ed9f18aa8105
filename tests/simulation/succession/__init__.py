"""A seeded simulator of replacing topics: the protocol of ``modeaware.lifecycle.replacement``, and nothing of shrinks.

**Real** are the engine, the lifecycle, the records with their JSON form, the fold over the mode log, the views, and of
clients the gate (``modeaware.clients.gate``). **Simulated** are the mode log, its election (those of
``tests.simulation``), brokers with replication, configs that take effect late and leaders that change, producers of any
age, groups, and people. Everything in a schedule follows from its seed.

The invariants judge by what really happened:

* a record that was acknowledged, to any producer, is given to every required group (I2), unless somebody deleted it;
* an aware group is given the records of each producer and key in the order in which they were acknowledged;
* no seal lies below a record that is acknowledged later, while nobody lifts the fence;
* no successor is deleted that was written to; a name that has led to a successor leads there for good;
* the predecessor is deleted by its id, behind its fence, with every record given to every required group, and under no
  subscriber, by what was so at the last look and at the last checks; its record says so first;
* versions rise, one controller's records count (I4, I5), and every change finishes.

Schedules of *chains* (``chain_schedule``) go on from there: the successor is replaced while its predecessor drains or
waits for its deletion, also by a topic of an earlier name, and other topics come up under aliases, which people
forget, delete or try to replace. There, too (``chain_judge``):

* a chain grows at its end alone, and is deleted from its beginning;
* an up-to-date client uses a topic of the chain, and none else of their names; at the end every name that has led to a
  successor leads to the last topic.

**Not simulated**: the shells around librdkafka (pausing, threads, rebalances in mid-poll), the wire, ACLs, acks=0,
clocks that jump, successors of a chain that are deleted by hand, and what a broker is asked between a controller's last
look and the moment at which its request is carried out.
"""
