"""Requests to brokers: facts about topics, groups and producers, and the effects of the lifecycle."""
