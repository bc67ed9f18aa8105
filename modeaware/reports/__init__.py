"""Reports about a topic, for people and machines: its description, its drain certificate, its groups."""
