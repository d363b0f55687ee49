"""Installs the agent on the platform, checks the installation, and takes it away again.

A deployment is a list of steps in the order of a first install. Each compares what is there with what is wanted and writes only the
difference, so that a second run writes nothing and a run that failed is simply run again. The steps stand on four clients, one for
each place things are kept: `management_api`, `configuration_store`, `vault`, `reference_blobs`.
"""
