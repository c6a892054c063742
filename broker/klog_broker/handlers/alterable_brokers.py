"""Finds the broker whose settings a client asks for or alters, or the error."""

import re

from klog_broker.handlers.context import BrokerServices
from klog_broker.metadata.image import ALL_BROKERS
from pyspark_klog.errors import BrokerError, ErrorCode

_NUMBER = re.compile(r"[+-]?\d{1,10}", re.ASCII)


def stored_name(broker: BrokerServices, name: str) -> str:
    """Under which name the settings of a resource are stored: this broker's id, or ALL_BROKERS for
    the empty name. BrokerError for another broker."""
    if name == ALL_BROKERS:
        return name
    if not _NUMBER.fullmatch(name) or int(name) != broker.broker_id:
        text = f"this is broker {broker.broker_id}, and it does not know broker {name!r}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return str(broker.broker_id)
