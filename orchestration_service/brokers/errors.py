"""Errors of the brokers.

BrokerError
├── BrokerClosed             a broker was used outside its ``async with`` block
└── UpstreamFault            what an upstream did wrong; judged and turned into an answer, never raised to callers
    ├── NotAModel            the answer is no answer of a Messages endpoint, such as a sign-in page
    ├── EmptyStream          the stream ended without an event
    ├── StreamCut            the stream ended before its message did
    └── StreamStalled        the stream began and then nothing came for too long
"""


class BrokerError(Exception):
    """Root of this package's errors."""


class BrokerClosed(BrokerError):
    """The broker is used before it was entered or after it was left."""


class UpstreamFault(BrokerError):
    """Something an upstream did that HTTP has no status for."""


class NotAModel(UpstreamFault):
    """What answered is no Messages endpoint."""


class EmptyStream(UpstreamFault):
    """The stream ended without a single event."""


class StreamCut(UpstreamFault):
    """The stream ended before its message did."""


class StreamStalled(UpstreamFault):
    """The stream began, and then no byte came for the allowed time."""
