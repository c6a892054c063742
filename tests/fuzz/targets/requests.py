"""Well-formed requests of every served API and version, with likely and unlikely values.

An input is one frame. The promises of `frames` hold here, too. Each request gets a response of its
API and version, unless it waits for another request or wants none.
"""

from random import Random

from klog_broker.api.families import SERVED
from pyspark_klog.protocol.errors import MalformedRequest
from pyspark_klog.protocol.headers import decode_request, decode_response
from pyspark_klog.protocol.keys import ApiKey
from tests.fuzz.brokers import FedBroker, frames_of, likely_request
from tests.fuzz.target import BrokenPromise, Target

_FIXED_BYTES = 8 << 20
_MOST_BYTES_A_BYTE = 200
_MAY_WAIT = frozenset(
    (ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE, ApiKey.CREATE_TOPICS)
)
_SERVED = frozenset(each.api_key for each in SERVED)


class Requests(Target):
    """Feeds well-formed requests to a broker."""

    name = "requests"
    block = 500

    def renew(self) -> None:
        self._broker = FedBroker()

    def make(self, random: Random) -> bytes:
        return likely_request(random)[2]

    def check(self, data: bytes) -> None:
        stream = self._broker.feed(data, 1 << 20)
        answers = frames_of(bytes(stream.sent))
        try:
            header, _ = decode_request(data[4:])
        except (MalformedRequest, KeyError):
            # Only an input that was made smaller is no request.
            return
        if len(answers) > 1:
            raise BrokenPromise(f"{len(answers)} answers to one request")
        for answer in answers:
            decode_response(answer, header.api_key, header.api_version)
        if not answers and header.api_key not in _MAY_WAIT:
            raise BrokenPromise(f"{ApiKey(header.api_key).name} is not answered")

    def most_bytes(self, data: bytes) -> int:
        return _FIXED_BYTES + _MOST_BYTES_A_BYTE * len(data)


TARGET = Requests
