"""SaslHandshake: choose the SASL mechanism of a connection."""

from pyspark_klog.protocol.fields import array, int16, string
from pyspark_klog.protocol.keys import ApiKey
from pyspark_klog.protocol.message import Request, Response


class SaslHandshakeRequest(Request, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Response, api=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
