"""What happens in the simulator where topics are replaced: people, groups behind the gate, and the invariants.

The invariants of replacements (``judge``):

* a record that was acknowledged, to any producer, is given to every required group (I2), unless somebody deleted it;
* an aware group is given the records of each producer and key in the order in which they were acknowledged;
* no seal lies below a record that is acknowledged later, while nobody lifts the fence;
* no new topic is deleted that was written to; a name that has pointed to a new topic points there for good;
* the old topic is deleted by its id, behind its fence, with every record given to every required group, and under no
  subscriber, by what was so at the last look and at the last checks; its record says so first;
* a chain grows at its end alone, and is deleted from its beginning;
* a topic that keeps its name has it in the end, with the number of partitions that was asked for, and nothing is left
  of the interim topic; no other command changes that meanwhile; a topic in the way is deleted only while it is empty;
* an up-to-date client uses a topic of the chain, and none else of their names; at the end every name that has pointed
  to a new topic points to the last one.

**Not simulated**: new topics of a chain that are deleted by hand.
"""
