"""Transactions are not served yet: the error for requests with a transactional id."""

from pyspark_klog.errors import BrokerError, ErrorCode

# This error is fatal in every client. With a retriable error clients would ask for ever, and
# UNSUPPORTED_VERSION would not name the reason.
NO_TRANSACTIONS = BrokerError(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "this broker has no transactions yet: leave transactional.id unset (idempotence works)",
)
