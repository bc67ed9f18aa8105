"""The mode log: one compacted topic that holds the whole truth about every topic's partition modes."""
