"""Reads the partitions of a Fetch, within the byte limits of each partition and of the request."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klog_broker.config import stored_topic_config
from klog_broker.fetch.down_conversion import SetToConvert
from klog_broker.fetch.follower_fetch import follower_of, replica_of
from klog_broker.fetch.partition_read import ReadPartition, Reads
from klog_broker.fetch.services import FetchServices
from klog_broker.log.errors import ColdRead, DamagedLog, LogStorageError, OffsetOutOfRange
from klog_broker.log.partition_log import PartitionLog
from klog_broker.log.read.bare_batches import bare_batches
from klog_broker.log.read.read_results import ReadInfo
from klog_broker.replication.leader import Leader
from klog_broker.resources.authorizer import ALLOWS_ALL
from klog_broker.resources.led_partitions import check_leader_epoch, led_partition, topic_name
from klog_broker.runtime.disk.files import ReadRegion
from klog_broker.security.acls import CLUSTER_NAME, AclOperation, AclResourceType
from klog_broker.security.principal import KafkaPrincipal
from pyspark_klog.errors import BrokerError, ErrorCode
from pyspark_klog.ids import UUID, BrokerId
from pyspark_klog.protocol.apis.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
)
from pyspark_klog.records.layout import LOG_OVERHEAD, LOG_OVERHEAD_BYTES, MAGIC_V0, MAGIC_V1

READ_COMMITTED = 1
# Followers read past the high watermark, and so does the replica id that Kafka's brokers use to
# copy a replica to another log directory. All other negative ids are consumers, including -2 of
# old debugging tools.
_COPY_ON_ANOTHER_DISK = -3

_FIRST_VERSION_WITH_V1 = 2
_FIRST_VERSION_WITH_V2 = 4
FIRST_VERSION_WITH_TOPIC_IDS = 13
_LAST_VERSION_WITH_HARD_LIMIT = 2

# How many cold partitions (those whose look-ups would block on the disk) one call of `read`
# collects before helper threads read their pages.
_COLD_AT_ONCE = 16

MAX_HEADERS = 1000
"""How many batch headers one response reads while it searches for batches with records, because a
client of Fetch before version 4 cannot read a batch without records. Each partition after the limit
reads one more header, so that every fetch makes progress."""


def requested_partitions(
    request: FetchRequest, version: int, services: FetchServices
) -> list[ReadPartition]:
    """Return all partitions in the order of the request.

    A partition that the request lists twice is read once, with the offset and limit of its last
    entry in the request, as in Kafka.
    """
    partitions = []
    for topic in request.topics:
        name = topic.topic
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            name = name_of_topic(services, topic.topic_id)
        partitions += [
            ReadPartition(topic.topic, topic.topic_id, name, partition)
            for partition in topic.partitions
        ]
    if len(partitions) > 1:
        found = {(each.topic, each.topic_id, each.request.partition): each for each in partitions}
        if len(found) < len(partitions):
            return list(found.values())
    return partitions


def name_of_topic(services: FetchServices, topic_id: UUID) -> str:
    """Return the name of the topic with this id; empty if there is none."""
    found = services.metadata.image.topic_by_id(topic_id)
    return found.name if found is not None else ""


MayRead = Callable[[str], bool]
"""Returns whether the client may read the topic with this name."""


def read_access(
    services: FetchServices,
    request: FetchRequest,
    version: int,
    principal: KafkaPrincipal,
    host: str,
) -> MayRead | None:
    """Return the check of the client's access to topics; None if every client may read all topics.

    Followers need access to the cluster instead. The check caches its decision about each topic, so
    it must be used for one request only, or for requests under one version of the access rules.
    """
    authorizer = services.authorizer
    if authorizer is ALLOWS_ALL:
        return None
    decisions: dict[str, bool] = {}
    is_of_follower = replica_of(request, version).replica_id >= 0

    def may_read(name: str) -> bool:
        if name not in decisions:
            access = (
                (AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
                if is_of_follower
                else (AclOperation.READ, AclResourceType.TOPIC, name)
            )
            decisions[name] = authorizer.is_allowed(principal, host, *access)
        return decisions[name]

    return may_read


class FetchReader:
    """Reads the partitions of one fetch: when the request arrives, and again while the fetch waits
    for min_bytes and a partition may have got more records. A cached fetch (cached_fetch.py) uses
    one reader for all its repetitions."""

    def __init__(
        self,
        request: FetchRequest,
        version: int,
        services: FetchServices,
        listener: str,
        may_read: MayRead | None,
    ) -> None:
        """``may_read`` returns whether the client may read a topic; None if every client may read
        all topics."""
        self._may_read = may_read
        self._services = services
        self._version = version
        sent_by = replica_of(request, version)
        replica_id = sent_by.replica_id
        self._follower = follower_of(sent_by, services.follower_refusal, listener)
        self._reads = Reads.VISIBLE
        if replica_id >= 0 or replica_id == _COPY_ON_ANOTHER_DISK:
            self._reads = Reads.ALL
        elif request.isolation_level == READ_COMMITTED:
            self._reads = Reads.COMMITTED
        self._max_bytes = min(request.max_bytes, services.config["fetch.max.bytes"])
        self._headers_left = 0

    @property
    def follower(self) -> BrokerId | None:
        """The broker id of the follower that sent the fetch; None for a consumer."""
        return None if self._follower is None else self._follower.broker_id

    @property
    def converts_to(self) -> int | None:
        """The newest record format that this client can read; None if it can read all formats."""
        if self._version >= _FIRST_VERSION_WITH_V2:
            return None
        return MAGIC_V1 if self._version >= _FIRST_VERSION_WITH_V1 else MAGIC_V0

    def read(self, partitions: Sequence[ReadPartition]) -> list[ReadPartition]:
        """Read each partition. Return the cold partitions, whose look-ups would block on the disk,
        at most _COLD_AT_ONCE. If there are any, the results are incomplete, and the caller reads
        all partitions again."""
        left_bytes = self._max_bytes
        self._headers_left = MAX_HEADERS
        min_one_batch = self._version > _LAST_VERSION_WITH_HARD_LIMIT
        cold: list[ReadPartition] = []
        for each in partitions:
            each.forget_result()
            try:
                self._read_one(each, left_bytes, min_one_batch)
            except BrokerError as error:
                each.refuse(error.code)
            except OffsetOutOfRange:
                each.refuse(ErrorCode.OFFSET_OUT_OF_RANGE)
            except LogStorageError:
                each.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            except DamagedLog as error:
                if each.leader is not None:
                    each.leader.log.report_damage(
                        f"Fetch offset={each.request.fetch_offset}", error
                    )
                each.refuse(ErrorCode.CORRUPT_MESSAGE)
            except OSError as error:
                if each.leader is not None:
                    each.leader.log.read_failed(error)
                each.refuse(ErrorCode.KAFKA_STORAGE_ERROR)
            except ColdRead as waits:
                each.forget_result()
                each.cold = waits.warm
                cold.append(each)
                if len(cold) == _COLD_AT_ONCE:
                    break
            except Exception as error:
                # A bug in the read of one partition must not fail the others.
                self._services.requests.bugs.report(
                    f"reading {each.name}-{each.request.partition}", error
                )
                each.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            left_bytes = max(0, left_bytes - each.size_bytes)
            if each.size_bytes:
                min_one_batch = False
        return cold

    def _read_one(self, each: ReadPartition, left_bytes: int, min_one_batch: bool) -> None:
        if self._may_read is not None and each.name and not self._may_read(each.name):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        leader = each.leader
        if leader is None or leader.ended is not None:
            has_name = each.name != ""
            leader = self._find_leader(each)
            if self._may_read is not None and not (has_name or self._may_read(each.name)):
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        request = each.request
        # Kafka treats every negative leader epoch in a Fetch as absent.
        if 0 <= request.current_leader_epoch != leader.leader_epoch:
            check_leader_epoch(leader, request.current_leader_epoch)
        end_offset = each.note_leader(leader, self._reads)
        log = leader.log
        follower = self._follower
        if follower is not None:
            follower.check(leader, request)
        if request.last_fetched_epoch >= 0 and self._has_diverged(each, log):
            return
        if follower is not None:
            follower.note_progress(leader, each)
        if request.fetch_offset == end_offset and not log.is_offline:
            # The client has all records that it may read, as is usual for a fetch that waits: there
            # is nothing to read.
            each.is_at_end = True
            return
        max_bytes = min(max(request.partition_max_bytes, 0), left_bytes)
        offset: int = request.fetch_offset
        while True:
            info = log.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                min_one_batch=min_one_batch,
                may_block=each.may_block,
            )
            behind = self._behind_bare_batches(each, info)
            if behind is None:
                break
            offset = behind
        each.is_at_end = offset >= end_offset
        region = self._region_to_send(each, info, max_bytes, min_one_batch)
        if region is not None and info.segment is not None:
            self._fill(each, log, region)
            if self._reads is Reads.COMMITTED:
                aborted = log.aborted_in(
                    info.segment, region, request.fetch_offset, may_block=each.may_block
                )
                each.aborted_transactions = [
                    AbortedTransaction(
                        producer_id=entry.producer_id, first_offset=entry.first_offset
                    )
                    for entry in aborted
                ]

    def _behind_bare_batches(self, each: ReadPartition, info: ReadInfo) -> int | None:
        """Return the offset after the control batches and batches without records with which the
        region begins; None if it begins with no such batch, or if the limit MAX_HEADERS is reached.
        A client of Fetch before version 4 cannot read such batches: if it got nothing else, as at
        the end of a cleaned segment, it would never advance."""
        if self.converts_to is None or info.region is None or info.segment is None:
            return None
        headers = max(self._headers_left, 1)
        found = bare_batches(info.segment, info.region, headers, may_block=each.may_block)
        self._headers_left -= found.headers
        return found.next_offset if self._headers_left > 0 else None

    def _find_leader(self, each: ReadPartition) -> Leader:
        if self._version >= FIRST_VERSION_WITH_TOPIC_IDS:
            # Look the name up again: in a session, the partition comes from an earlier fetch, and
            # its topic may have been deleted since.
            each.name = topic_name(self._services, each.topic_id, each.request.partition)
        return led_partition(self._services, each.name, each.request.partition)

    def _has_diverged(self, each: ReadPartition, log: PartitionLog) -> bool:
        """Return whether the log of the fetch's sender, a follower, has diverged: in the leader's
        log, the last epoch that the follower fetched is missing, or ends before the fetch offset
        (KIP-595). Raise BrokerError if the leader's log begins after that epoch or offset."""
        request = each.request
        found = log.end_offset_for_epoch(request.last_fetched_epoch)
        # The leader's log knows nothing about epochs before its start.
        if found.leader_epoch < 0 or request.fetch_offset < log.log_start_offset:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if (
            found.leader_epoch >= request.last_fetched_epoch
            and found.end_offset >= request.fetch_offset
        ):
            return False
        each.diverging_epoch = EpochEndOffset(epoch=found.leader_epoch, end_offset=found.end_offset)
        each.aborted_transactions = None
        each.ends_the_wait = True
        return True

    def _region_to_send(
        self, each: ReadPartition, info: ReadInfo, max_bytes: int, min_one_batch: bool
    ) -> ReadRegion | None:
        """Return the region that was read, or None if it must not be sent. Since version 3 only the
        first partition with records may exceed its byte limit (KIP-74): for another partition, a
        region that has only the beginning of a batch is not sent."""
        region = info.region
        if region is None or min_one_batch or region.size < max_bytes:
            return region
        if self._version <= _LAST_VERSION_WITH_HARD_LIMIT:
            return region
        if region.size < LOG_OVERHEAD_BYTES:
            return None
        head = _bytes_of(each, ReadRegion(region.file, region.position, LOG_OVERHEAD_BYTES))
        _, length = LOG_OVERHEAD.unpack(head)
        return region if LOG_OVERHEAD_BYTES + length <= region.size else None

    def _fill(self, each: ReadPartition, log: PartitionLog, region: ReadRegion) -> None:
        """Add the records in the region to the partition's result: as the region of the file, or as
        records that a helper thread converts to an older format for an old client."""
        if self.converts_to is not None:
            configs = self._services.metadata.topic_configs(each.name)
            config = stored_topic_config(self._services.config, configs)
            if not config["message.downconversion.enable"]:
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
            each.to_convert = SetToConvert(
                region, each.request.fetch_offset, log.config.max_decompressed_bytes
            )
        else:
            each.region = region
        each.size_bytes = region.size


def _bytes_of(each: ReadPartition, region: ReadRegion) -> bytes:
    """Return the region's bytes. Raise ColdRead if the read would block on the disk, and no helper
    thread has read the pages before."""
    file = region.file
    if each.may_block:
        return file.pread(region.size, region.position)
    data = file.pread_now(region.size, region.position)
    if data is None:
        raise ColdRead(lambda: file.read_ahead(region.position, region.size))
    return data
