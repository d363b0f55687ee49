"""Checks that a server is a Context API, for our own and for others'."""
