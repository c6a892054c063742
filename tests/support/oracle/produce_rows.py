"""The rows of `oracle/rows.py` for Produce."""

from pyspark_klog.records.compression import Codec
from tests.support.oracle.row import (
    ORDER,
    SAME,
    SERVER_ERROR,
    Row,
    all_of,
    has_batch_without_epoch,
    has_codes,
    is_before,
    is_fault_of_acks_or_topic,
    is_named_twice,
    of_request,
    records_are,
    records_may_be,
)

PRODUCE_ROWS = [
    Row(
        "Produce",
        "",
        "null records",
        "no response at all",
        SAME,
        "INVALID_RECORD",
        "the client would wait until its time-out",
        all_of(
            lambda case, kafka, klog: isinstance(kafka, str),
            of_request(
                lambda request: any(
                    each.records is None
                    for topic in request.topic_data
                    for each in topic.partition_data
                )
            ),
        ),
    ),
    Row(
        "Produce",
        "responses.partition_responses.log_start_offset",
        "records that are refused",
        "the log start offset",
        SAME,
        "-1",
        "no client uses it beside an error",
        lambda case, kafka, klog: klog == -1,
    ),
    Row(
        "Produce",
        "responses.partition_responses.error_code",
        "codec 5 to 7 in the attributes of a batch",
        SERVER_ERROR,
        SAME,
        "UNSUPPORTED_COMPRESSION_TYPE",
        "it names the fault; clients send the batch again on neither",
        all_of(has_codes({-1}, {76}), records_are("codec 5", "codec 7", "likely", "damaged")),
    ),
    Row(
        "Produce",
        "responses.partition_responses.error_code",
        "records of at most 16 bytes, too few for a magic byte",
        "CORRUPT_MESSAGE",
        SAME,
        "INVALID_RECORD",
        "clients send again on CORRUPT_MESSAGE, for ever",
        all_of(has_codes({2}, {87}), records_are("16 bytes")),
    ),
    Row(
        "Produce",
        "responses.partition_responses.error_code",
        "a transaction marker, without a transactional_id",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        SAME,
        "INVALID_RECORD",
        "clients may not write markers, with no transactional_id either",
        all_of(has_codes({53}, {87}), records_are("a marker")),
    ),
    Row(
        "Produce",
        "responses.partition_responses.error_code",
        "wrong records or a wrong transaction, and a wrong acks, topic or partition",
        "the fault of the records or of the transaction",
        SAME,
        "the fault of acks, the topic or the partition",
        ORDER,
        all_of(
            lambda case, kafka, klog: kafka in (-1, 2, 47, 48, 49, 53, 76, 87, 120),
            is_fault_of_acks_or_topic,
        ),
    ),
    Row(
        "Produce",
        "responses.partition_responses.error_code",
        "a transactional batch with producer_epoch -1, and another fault",
        "INVALID_PRODUCER_EPOCH or INVALID_PRODUCER_ID_MAPPING, from the coordinator",
        SAME,
        "CORRUPT_MESSAGE or INVALID_TXN_STATE, from the log",
        "no coordinator gives that epoch: klog asks none about it",
        all_of(has_codes({47, 49}, {2, 48}), of_request(has_batch_without_epoch)),
    ),
    Row(
        "Produce",
        "responses.partition_responses",
        "a batch that is cut off, versions 0 to 2",
        "accepted, and nothing is written",
        "does not serve them",
        "INVALID_RECORD",
        "the producer must learn that its records are lost",
        all_of(is_before(3), has_codes({0}, {87})),
    ),
    *(
        Row(
            api,
            "",
            "a zstd batch in versions 0 to 2",
            "stored (versions 3 to 6: UNSUPPORTED_COMPRESSION_TYPE)",
            "does not serve them",
            "UNSUPPORTED_COMPRESSION_TYPE, as for versions 3 to 6",
            "clients of these versions write message sets; none knows zstd",
            all_of(is_before(3), of_request(lambda request: records_may_be(request, Codec.ZSTD))),
        )
        for api in ("Produce", "Produce > Fetch", "Produce > ListOffsets")
    ),
    *(
        Row(
            api,
            "",
            "a partition twice",
            "the records that are named last, in one batch",
            SAME,
            "each record set is appended",
            "acknowledged records must not be dropped",
            is_named_twice,
        )
        for api in ("Produce", "Produce > Fetch", "Produce > ListOffsets")
    ),
]
