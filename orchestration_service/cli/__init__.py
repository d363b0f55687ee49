"""The command line: demo, serve, bench."""

from orchestration_service.cli.main import main

__all__ = ["main"]
