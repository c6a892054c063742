"""The errors that a client's calls raise. ``retriable`` says whether trying again may help.

An error code that a broker answers is raised as `pyspark_klog.errors.BrokerError`. This module also
exports the errors of settings and authentication, so that users find all errors in one module.
"""

from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.errors import ClientError as ClientError
from pyspark_klog.security.errors import AuthenticationFailed as AuthenticationFailed
from pyspark_klog.security.errors import SettingError as SettingError
from pyspark_klog.security.errors import one_line as one_line


class ConnectionFailed(ClientError):
    """The connection could not be made, or was lost; the request may or may not have been done."""

    retriable = True


class RequestTimedOut(ClientError):
    """The reply did not come within the request's timeout; the broker may have done the request."""

    retriable = True


class ReplyUnreadable(ClientError):
    """The bytes that the broker sent are not a reply in Kafka's protocol."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of an API that this client could use."""


class TlsFailed(ClientError):
    """The TLS handshake failed: certificates, host name, versions, or a listener without TLS."""


class NoBrokerAvailable(ClientError):
    """The client could not reach a broker at any of its addresses."""

    retriable = True


class LeaderUnknown(ClientError):
    """A partition has no leader now, or the metadata does not know it yet."""

    retriable = True


class TopicMissing(ClientError):
    """The topic, or the partition, does not exist."""


class TimedOut(ClientError):
    """The operation did not succeed within its time limit, retries included."""


class DeliveryFailed(ClientError):
    """Records were not acknowledged in time, or were refused: then ``code`` is the broker's."""

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.code = code


class TransactionMisuse(ClientError):
    """A call that the state of the producer's transaction does not allow; nothing was done."""


class _TransactionFailed(ClientError):
    """``code`` is the coordinator's or the leader's, if one refused; ``reason`` has no advice."""

    def __init__(self, reason: str, code: ErrorCode | None = None, advice: str = "") -> None:
        super().__init__(reason + advice)
        self.reason = reason
        self.code = code


class TransactionMustAbort(_TransactionFailed):
    """The transaction can't be committed any more. The producer can be used again after
    `abort_transaction` (KIP-1050: abortable)."""


class ProducerUnusable(_TransactionFailed):
    """This producer can do nothing more; another one has to take over its transactional id, which
    ends its transaction (KIP-1050: recoverable by the application, or a wrong configuration)."""


class ProducerFenced(ProducerUnusable):
    """A newer producer has the transactional id, and the coordinator ends the transaction of this
    one. Before transaction.version 2 also: the transaction took longer than it may."""


_CODES = {code.value: code for code in ErrorCode}


def is_retriable(error: BaseException) -> bool:
    """Whether the same request, sent again later, may succeed."""
    if isinstance(error, BrokerError):
        return error.code.retriable
    return isinstance(error, ClientError) and error.retriable


def error_code(number: int) -> ErrorCode:
    """Kafka's code of a number from the wire; one that klog does not know is a server error."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


_NEEDED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "a reader's user needs READ and DESCRIBE on the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user needs READ on the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user needs a permission on the cluster itself",
}


def broker_error(code: ErrorCode, what: str) -> BrokerError:
    """A broker's refusal of something that is named: ``fetch from t-0``."""
    needed = f"; {_NEEDED[code]}" if code in _NEEDED else ""
    return BrokerError(code, f"{what}: {code.message}{needed}")


def check_answer(number: int, text: str | None, what: str) -> None:
    """Raise what a broker answered, with the reason that it gave, unless it is no error."""
    code = error_code(number)
    if code is not ErrorCode.NONE:
        raise BrokerError(code, f"{what}: {text or code.message}")


def may_pass_at_controller(error: BaseException) -> bool:
    """Whether to ask for an administrative change again: an answer about its subject is final,
    unless it came from a broker that is not the controller, or did not reach it."""
    if isinstance(error, BrokerError):
        return error.code is ErrorCode.NOT_CONTROLLER
    return is_retriable(error)
