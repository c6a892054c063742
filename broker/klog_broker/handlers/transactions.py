"""Transactions are not served yet: whoever brings a transactional id is told so, for good."""

from pyspark_klog.errors import BrokerError, ErrorCode

# Fatal to every client. A retriable error would let it ask for ever, and UNSUPPORTED_VERSION would
# not name the reason.
NO_TRANSACTIONS = BrokerError(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "this broker has no transactions yet: leave transactional.id unset (idempotence works)",
)
