"""The kinds of steps a deployment is made of, one module each."""
