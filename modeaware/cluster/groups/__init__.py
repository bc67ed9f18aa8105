"""Which groups there are, who is in them, and what they have committed."""
