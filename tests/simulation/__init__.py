"""A seeded simulator of the whole protocol: everything that happens in a schedule follows from its seed.

**Real** are the engine (``modeaware.controller.engine``), the lifecycle, the records with their JSON form, the fold
over the mode log, views, routing, the partitioners, the dealing of assignments, and before an effect the lease and the
check of the topic's id. **Simulated** is what they talk to, one world for all
schedules (``world``): topics with replicated logs and with configs that take effect late, the mode log, the
controllers' group, clients, and people.

Every request of a controller goes through ``World.io``. There the controller may die, or be paused while others take
whole steps (another controller among them, paused in its turn), so controllers interleave at every request without
threads. Each schedule has a random half of the faults, with random weights (swarm testing). The judge (``invariants``)
checks each step by what really happened, not by what the controller knows. At the end of a schedule (``ending``)
nothing fails any more, everything gets time, a person does what the reasons ask for, and every change must finish and
every record reach every group. A *step* is one event (``actions``) or one request of a controller.

The seed decides what a schedule is about (``faults.Kind``); the world has that as its parameter:

* Shrinks and growths (``actions``). Brokers lose leaders and records, groups are dealt partitions by modes.
* Replacements, deletions of the old topic, and chains (``succession``): records are replicated a while after they were
  appended, groups read through the gate, fences are put on and lifted. Chains go on where replacements end: the new
  topic is replaced as well, also by one of an earlier name, and other topics come up under aliases.

**Not simulated**, and tested elsewhere or not at all:

* Notes of members, and which groups the controller opens the gate for by them (``tests.support.gate_model``,
  ``tests.support.member_world``): here a group opens its gate itself, by its commits (``succession.gate``).
* Shrinks of topics that are replaced, and the faults of the one kind of schedules in the other.
* The shells around librdkafka: threads, polling, callbacks, retries inside the library. Where the simulated consumer
  starts to read is written after ``modeaware.confluent`` by hand.
* ``cluster.observer``, ``cluster.groups`` and what they send. The simulated observer asks in the same order and
  tells the same facts; where the two drift apart the simulator does not notice.
* The loop around the engine (``controller.worker``), the listener, the wire, the command line.
* Brokers as such: ISR, the coordinators' own faults. Kafka's promises about fencing are taken as kept,
  but for the one stray record in ``BrokerActions.stray``.
* What compaction takes, and the evacuation of a compacted topic that is replaced.
* A mode log that loses its end, clocks that jump or differ between controllers, more than one topic, globs in rules.
* Compaction that takes a topic's last good record because rubbish stands behind it: then nothing tells its modes any
  more. Nor an unreadable claim where no other record tells its epoch: it is written back before a controller reads.
* What changes between a controller's last look and the moment a request is carried out: the window that is documented.
* What ``latest`` makes of a commit below the log start after an ``immediate_delete`` or the topic's own retention: the
  group begins at the end, and nobody is blamed.
"""
