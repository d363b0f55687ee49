"""What the service does for the sandbox with credentials the sandbox never has.

`model` calls a model: `route` says where, `call` what is asked and answered, `gate` what a sandbox may not ask for,
`attempt` tries once, `judge` decides what a failure means, `retry` how long to wait.
"""
