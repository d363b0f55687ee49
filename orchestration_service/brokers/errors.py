"""Errors of the brokers.

BrokerError
├── BrokerClosed             a broker was used outside its ``async with`` block
└── UpstreamFault            what an upstream did wrong; judged and turned into an answer, never raised to callers
    ├── NotAModel            the answer is no answer of a Messages endpoint, such as a sign-in page
    ├── EmptyStream          the stream ended without an event
    ├── StreamCut            the stream ended before its message did
    ├── StreamStalled        the stream began and then nothing came for too long
    ├── IdentityRefused      the service's identity gets no token, or no role, to call the model with
    ├── IdentityAway         whoever gives out such tokens cannot be reached
    └── RouteUnusable        no request can be made for this route: a package or a part of it is missing
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


class IdentityRefused(UpstreamFault):
    """There is no identity here, or its issuer refuses it. Says who the issuer is; the reasons are in the log."""


class IdentityAway(UpstreamFault):
    """The issuer of tokens does not answer. Says who it is."""


class RouteUnusable(UpstreamFault):
    """No request can be made for a route; says why, in words an administrator can act on."""
