"""The Context API on one machine: the platform's wire on SQLite, a folder and any sandbox."""
