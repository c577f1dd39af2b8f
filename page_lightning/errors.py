"""One exception type per user mistake.

Every message is one line that names the option, file or value to change; the command line prints it and exits with
status 2.
"""

from collections.abc import Sequence


class PageLightningError(Exception):
    """Base of every error a user can cause and mend."""


class DataSourceError(PageLightningError):
    """A data set is unknown, missing, truncated, cannot be downloaded, or its content is not what it should be."""


class PartitionError(PageLightningError):
    """A graph cannot be divided among the clients as asked."""


class SplitError(PageLightningError):
    """Training, validation and test nodes cannot be drawn as asked."""


class RequestError(PageLightningError):
    """Something cannot be forgotten as asked."""


class StaleRequestError(RequestError):
    """A request was made for other data, another partition or split, or its file was changed afterwards."""


class PoisonError(PageLightningError):
    """A graph cannot be poisoned as asked."""


class ConfigurationError(PageLightningError):
    """Options that contradict each other or the data."""


class CheckpointMismatchError(PageLightningError):
    """A checkpoint does not belong to the model or the data it is loaded for."""


class UnsupportedRequestError(PageLightningError):
    """A method cannot carry out this kind of request.

    Args:
        method: the method's name.
        kinds: the kinds it cannot carry out.
    """

    def __init__(self, method: str, kinds: Sequence[str]) -> None:
        super().__init__(f"method {method} cannot carry out {' and '.join(kinds)} requests")
