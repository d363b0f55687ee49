"""What runs inside the sandbox: the code-session server, the runner with its mailbox, and the wall around the agent.

Nothing in here holds a credential or has a network. The service talks to the runner only through `executeCode`.
"""
