"""Examines a live installation from end to end, without changing anything, and tells what is wrong with the way to put it right.

First everything is asked for at once (`gathering`), then small pure functions judge what was found (`checks`). What could not be
found out is a finding of its own: an examination never passes what it did not see.
"""
