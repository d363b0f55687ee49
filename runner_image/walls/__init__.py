"""The wall between the agent and the runner: what it promises (`wall`), two ways to build it, and which one this sandbox lets us have."""

from runner_image.walls.choosing import find_wall, refuse_weaker
from runner_image.walls.wall import INSIDE, View, Wall, base_environment

__all__ = ["INSIDE", "View", "Wall", "base_environment", "find_wall", "refuse_weaker"]
