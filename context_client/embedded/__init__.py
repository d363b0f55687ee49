"""The Context API on one machine: the same wire as the platform's server, on SQLite, a folder and any sandbox provider."""
