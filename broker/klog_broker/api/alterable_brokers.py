"""Finds the stored name of the broker whose settings a client describes or alters: the id of this
broker, or ALL_BROKERS for the settings of all brokers together. A request for the settings of
another single broker is refused with BrokerError."""

import re

from klog_broker.api.services import SettingsServices
from klog_broker.metadata.image import ALL_BROKERS
from pyspark_klog.errors import BrokerError, ErrorCode

_NUMBER = re.compile(r"[+-]?\d{1,10}", re.ASCII)


def stored_name(services: SettingsServices, name: str) -> str:
    """Return the name under which the settings of a broker resource are stored: this broker's id,
    or ALL_BROKERS for the empty name. BrokerError for another broker."""
    if name == ALL_BROKERS:
        return name
    if not _NUMBER.fullmatch(name) or int(name) != services.broker_id:
        text = f"this is broker {services.broker_id}, it has no settings of broker {name!r}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, text)
    return str(services.broker_id)
