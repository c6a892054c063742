"""The errors that a client's calls raise. ``retriable`` says whether trying again may help.

An error code that a broker answers is raised as `pyspark_klog.errors.BrokerError`, unless a class
of this module stands for the failure, such as DeliveryFailed. This module also exports the errors
of settings and authentication, so that users find these errors in the same module.
"""

from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.errors import ClientError as ClientError
from pyspark_klog.security.errors import AuthenticationFailed as AuthenticationFailed
from pyspark_klog.security.errors import SettingError as SettingError
from pyspark_klog.security.errors import one_line as one_line


class ConnectionFailed(ClientError):
    """The connection failed or was lost; the broker may or may not have executed the request."""

    retriable = True


class RequestTimedOut(ClientError):
    """The response did not come within the request's timeout; the broker may have executed the
    request."""

    retriable = True


class ReplyUnreadable(ClientError):
    """The broker's response cannot be read, or lacks data that a response to the request must have,
    such as a whole batch."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of an API that this client could use."""


class TlsFailed(ClientError):
    """TLS failed, for example because of a certificate, the host name, the TLS versions, or a
    listener without TLS. Another attempt would fail in the same way."""


class NoBrokerAvailable(ClientError):
    """The client could not reach a broker at any of its addresses, or the metadata names no
    broker."""

    retriable = True


class LeaderUnknown(ClientError):
    """A partition has no leader now, or the partition or a broker is not in the client's metadata
    yet."""

    retriable = True


class TopicMissing(ClientError):
    """The topic, or the partition, does not exist."""


class TimedOut(ClientError):
    """The operation did not succeed within its time limit, retries included."""


class DeliveryFailed(ClientError):
    """Records were refused, with the broker's ``code``, or were not acknowledged in time or within
    the allowed number of attempts."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class TransactionMisuse(ClientError):
    """The state of the producer's transaction does not allow the method that was called, which has
    done nothing."""


class _TransactionFailed(ClientError):
    """``code`` is the error code that a coordinator or leader answered; ``reason`` is the message
    without ``advice``, the clause for the user that is appended to it."""

    def __init__(self, reason: str, code: ErrorCode | None = None, advice: str = "") -> None:
        super().__init__(reason + advice)
        self.reason = reason
        self.code = code


class TransactionMustAbort(_TransactionFailed):
    """The transaction can't be committed any more. The producer can be used again after
    `abort_transaction` (KIP-1050: abortable)."""


class ProducerUnusable(_TransactionFailed):
    """This producer can't be used any more. A new producer has to take over its transactional id,
    which ends the transaction (in KIP-1050: application-recoverable or invalid configuration)."""


class ProducerFenced(ProducerUnusable):
    """A newer producer has taken the transactional id, and the coordinator ends this producer's
    transaction. With transaction.version 0 and 1 this error is also raised once the coordinator has
    aborted a transaction that took longer than its timeout."""


_CODES = {code.value: code for code in ErrorCode}


def is_retriable(error: BaseException) -> bool:
    """Whether the same request, sent again later, may succeed."""
    if isinstance(error, BrokerError):
        return error.code.retriable
    return isinstance(error, ClientError) and error.retriable


def error_code(number: int) -> ErrorCode:
    """Kafka's error code for a number; UNKNOWN_SERVER_ERROR for a number that klog lacks."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


_NEEDED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "a reader's user needs READ and DESCRIBE on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user needs READ on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user needs a permission on the cluster itself",
}


def broker_error(code: ErrorCode, what: str) -> BrokerError:
    """The error for a broker's refusal; ``what`` names the refused work: ``fetch from t-0``."""
    needed = f"; {_NEEDED[code]}" if code in _NEEDED else ""
    return BrokerError(code, f"{what}: {code.message}{needed}")


def check_error_code(number: int, text: str | None, what: str) -> None:
    """Raise BrokerError with the broker's reason (``text``), unless ``number`` means no error."""
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, f"{what}: {text or code.message}")


def is_retriable_at_controller(error: BaseException) -> bool:
    """Whether to repeat an administrative request after an error: after a broker's error code only
    if the code is NOT_CONTROLLER, after any other error if it is retriable."""
    if isinstance(error, BrokerError):
        return error.code is ErrorCode.NOT_CONTROLLER
    return is_retriable(error)
