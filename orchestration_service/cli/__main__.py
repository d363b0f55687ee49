"""Runs the command line as `python -m orchestration_service.cli`."""

import sys

from orchestration_service.cli.main import main

sys.exit(main())
