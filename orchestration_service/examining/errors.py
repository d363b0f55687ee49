"""Everything an examination raises on purpose.

ExaminationError (a ServiceError)
└── NotKnown    a check needs a fact that could not be had; becomes a finding
"""

from orchestration_service.errors import ServiceError


class ExaminationError(ServiceError):
    """Root of the tree."""


class NotKnown(ExaminationError):
    """A fact could not be had.

    Attributes:
        what: What was asked for, in words.
        why: Why there was no answer.
        fix: What to do to get one.
    """

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what} could not be examined: {why} {fix}")
        self.what = what
        self.why = why
        self.fix = fix
