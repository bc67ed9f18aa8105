"""``python -m tests.chaos``: shrinks, undoes and grows on three real brokers while everything is killed and paused, and
a history checker that says whether a record was lost. See ``__main__`` for how to run it."""
