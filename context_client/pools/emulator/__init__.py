"""A session pool to develop and test against; what it imitates is in `baseline.json`, with the source of each fact."""

from context_client.pools.emulator.app import PoolEmulator
from context_client.pools.emulator.faults import Fault, Faults
from context_client.pools.emulator.interpreter import InterpreterSandboxes
from context_client.pools.emulator.settings import EmulatorSettings

__all__ = ["EmulatorSettings", "Fault", "Faults", "InterpreterSandboxes", "PoolEmulator"]
