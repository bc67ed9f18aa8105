"""Creating, growing and moving topics: KIP-195, KIP-409 and KIP-860."""
