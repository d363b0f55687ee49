"""Speed as ratios: what is compared is measured in the same run, on the same machine, taking turns."""
