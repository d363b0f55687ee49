"""Asks the service of this container whether it is alive; the image's own health check runs it, clusters ask by themselves."""

import os
import urllib.request

if __name__ == "__main__":
    port = os.environ.get("CLAUDE_CODE_PROBE_PORT", "8081")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/live", timeout=4):  # raises for anything but 200
        pass
