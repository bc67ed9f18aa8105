"""What people and machines read about a topic: its description, its drain certificate, its groups."""
