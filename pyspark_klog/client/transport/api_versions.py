"""Chooses the version in which klog sends requests of an API to a broker. Pure."""

from dataclasses import dataclass, field
from typing import Self

from pyspark_klog.client.errors import UnsupportedByBroker
from pyspark_klog.protocol import registry
from pyspark_klog.protocol.apis.api_versions import ApiVersionsResponse
from pyspark_klog.protocol.keys import ApiKey


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """The version ranges that a broker supports, by API key, both ends inclusive; also the features
    of its cluster."""

    ranges: dict[int, tuple[int, int]]
    features: dict[str, int] = field(default_factory=dict)
    """The levels of the features that the cluster has finalized (KIP-584)."""
    features_epoch: int = -1
    """The epoch of ``features``, which rises with each change; -1 if the broker sent none."""

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> Self:
        """The version ranges and features in a response to ApiVersions."""
        return cls(
            {row.api_key: (row.min_version, row.max_version) for row in response.api_keys},
            {row.name: row.max_version_level for row in response.finalized_features},
            response.finalized_features_epoch,
        )

    def newest(self, api_key: ApiKey, low: int = 0, high: int | None = None) -> int | None:
        """The newest version of an API, from ``low`` to ``high``, that klog and the broker support;
        None if there is no such version."""
        if api_key not in self.ranges:
            return None
        own = registry.find_api(api_key)
        lowest, highest = self.ranges[api_key]
        top = min(highest, own.max_version, own.max_version if high is None else high)
        return top if top >= max(lowest, own.min_version, low) else None

    def choose(self, api_key: ApiKey, low: int, high: int | None, peer: str) -> int:
        """The newest version of an API, from ``low`` to ``high``, that klog and the broker support.

        :raises UnsupportedByBroker: if there is no such version; the text names the broker as
            ``peer``, and the versions of both
        """
        version = self.newest(api_key, low, high)
        if version is not None:
            return version
        own = registry.find_api(api_key)
        wanted = f"{max(own.min_version, low)} to {own.max_version if high is None else high}"
        given = self.ranges.get(api_key)
        has = f"versions {given[0]} to {given[1]}" if given else "no version"
        raise UnsupportedByBroker(
            f"{peer} has {has} of {api_key.name}; klog needs one of {wanted}: "
            "expected a Kafka broker of 0.10.1 to 4.3, for some features a newer one than 0.10.1"
        )
