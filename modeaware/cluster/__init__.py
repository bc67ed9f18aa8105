"""What brokers are asked: facts about topics, groups and producers, and the effects of the lifecycle."""
