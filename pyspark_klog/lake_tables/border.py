"""The state of a topic's copy: where the records come from, and how far they are copied. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_klog.lake_tables.errors import LakeError, OtherTopic

Border = Mapping[int, int]
"""By partition number, the offset of the next record to copy."""

TOPIC = "klog.topic"
TOPIC_ID = "klog.topic-id"
CLUSTER_ID = "klog.cluster-id"
BORDER = "klog.border"
"""Names of a table's properties. The border is a JSON object: the keys are partition numbers, the
values offsets, as in the option startingOffsets of the source."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic whose records a table holds."""

    cluster_id: str
    topic: str
    topic_id: str
    """The id that brokers give the topic, as text; empty if the brokers are older than Kafka 2.8,
    which have no ids."""

    def check(self, found: "Origin", table: str) -> None:
        """Refuse to add records of the topic ``found`` to the table that has this origin.

        :raises OtherTopic: if ``found`` is another topic
        """
        if self.topic != found.topic:
            raise OtherTopic(
                f"{table} holds the records of topic {self.topic}, not of {found.topic}: copy "
                f"{found.topic} to another place"
            )
        difference = self._difference(found)
        if difference is not None:
            raise OtherTopic(
                f"{table} {difference}. To add the new topic's records to the table, run klog lake "
                "restart once with the same options; the old topic's rows stay"
            )

    def check_union(self, found: "Origin", table: str) -> None:
        """Refuse to read records of the topic ``found`` together with the table that has this
        origin.

        :raises OtherTopic: if ``found`` is another topic
        """
        if self.topic != found.topic:
            raise OtherTopic(
                f"{table} holds the records of topic {self.topic}, not of {found.topic}: read it "
                f"with topic={self.topic!r}"
            )
        difference = self._difference(found)
        if difference is not None:
            raise OtherTopic(
                f"{table} {difference}. A union would mix the rows of two topics: read the table "
                "alone, without topic, or the brokers' topic alone, with format('klog')"
            )

    def _difference(self, found: "Origin") -> str | None:
        """Return how the topic ``found``, which has the same name, differs, as a predicate; None if
        ``found`` is the same topic."""
        if self.cluster_id != found.cluster_id:
            what = f"of cluster {self.cluster_id}, and the brokers belong to {found.cluster_id}"
        elif "" not in (self.topic_id, found.topic_id) and self.topic_id != found.topic_id:
            what = f"with the id {self.topic_id}, and the brokers' topic has {found.topic_id}"
        else:
            return None
        return (
            f"holds the records of topic {self.topic} {what}: the topic was deleted and created "
            "again, or the brokers are other ones"
        )


@dataclass(frozen=True, slots=True)
class Head:
    """The origin and the border that a version of a table names."""

    origin: Origin
    border: Border
    committed_ms: int
    """When `klog lake` committed last, in milliseconds since 1970; 0 if other programs have removed
    the history in which this stands."""


def border_text(border: Border) -> str:
    """Return the border as JSON, sorted by partition."""
    return json.dumps({str(number): border[number] for number in sorted(border)})


def parse_border(text: str, table: str) -> dict[int, int]:
    """Parse the text of `border_text`.

    :raises LakeError: if someone has changed the property to another form
    """
    try:
        found = json.loads(text)
        border = {int(number): offset for number, offset in found.items()}
    except (ValueError, AttributeError, RecursionError):
        border = {-1: -1}
    if any(
        number < 0 or type(offset) is not int or offset < 0 for number, offset in border.items()
    ):
        raise LakeError(
            f"{table}: its property {BORDER} is {text!r}; expected a JSON object from partition "
            "numbers to offsets, as klog lake writes it"
        )
    return border
