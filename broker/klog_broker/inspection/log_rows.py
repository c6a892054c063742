"""The lines that `klog dump-log` prints of a .log file: batch headers, records and control
records."""

from base64 import b64encode
from collections.abc import Iterator
from itertools import repeat

from klog_broker.inspection.lines import Row, printable
from klog_broker.inspection.state_json import Decoded, Decoder, compact_json
from klog_broker.inspection.stored_entries import MAX_ENTRY_BYTES, StoredEntry
from pyspark_klog.records import layout as at
from pyspark_klog.records.batch import BatchView, add_to_sequence
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.control import (
    END_TRANSACTION_VALUE,
    ControlType,
    control_type_of,
)
from pyspark_klog.records.legacy import LegacyView, split_messages
from pyspark_klog.records.record import Record, TimestampType
from pyspark_klog.records.record_section import wrap_int64

_TIMESTAMP_NAMES = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def batch_row(stored: StoredEntry) -> Row:
    """Return the line that `klog dump-log` prints of a batch or of a v0 or v1 message, made from
    its header."""
    if stored.head.magic == at.MAGIC_V2:
        fields = _batch_fields(stored)
    else:
        fields = _message_fields(stored)
    fields["isvalid"] = stored.is_valid
    return Row("batch", fields, _as_text(fields))


def _batch_fields(stored: StoredEntry) -> dict[str, object]:
    (
        base_offset,
        _,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = at.BATCH_HEADER.unpack(stored.header)
    last_sequence = -1 if base_sequence == -1 else add_to_sequence(base_sequence, last_offset_delta)
    timestamp_type = TimestampType(int(bool(attributes & at.TIMESTAMP_TYPE_BIT)))
    return {
        "baseOffset": base_offset,
        "lastOffset": wrap_int64(base_offset + last_offset_delta),
        "count": count,
        "baseSequence": base_sequence,
        "lastSequence": last_sequence,
        "producerId": producer_id,
        "producerEpoch": producer_epoch,
        "partitionLeaderEpoch": leader_epoch,
        "isTransactional": bool(attributes & at.TRANSACTIONAL_BIT),
        "isControl": bool(attributes & at.CONTROL_BIT),
        "deleteHorizonMs": base_timestamp_ms if attributes & at.DELETE_HORIZON_BIT else None,
        "position": stored.position,
        "timestampType": _TIMESTAMP_NAMES[timestamp_type],
        "timestamp": max_timestamp_ms,
        "size": stored.head.size_bytes,
        "magic": magic,
        "compresscodec": _codec_name(attributes),
        "crc": crc,
    }


def _message_fields(stored: StoredEntry) -> dict[str, object]:
    offset, _, crc, magic, attributes = at.MESSAGE_V0.unpack_from(stored.header)
    timestamp_type, timestamp_ms = TimestampType.NO_TIMESTAMP, at.NO_TIMESTAMP_MS
    if magic == at.MAGIC_V1:
        timestamp_type = TimestampType(int(bool(attributes & at.TIMESTAMP_TYPE_BIT)))
        timestamp_ms = at.INT64.unpack_from(stored.header, at.LEGACY_TIMESTAMP_AT)[0]
    return {
        "offset": offset,
        "position": stored.position,
        "timestampType": _TIMESTAMP_NAMES[timestamp_type],
        "timestamp": timestamp_ms,
        "size": stored.head.size_bytes,
        "magic": magic,
        "compresscodec": _codec_name(attributes),
        "crc": crc,
    }


def _codec_name(attributes: int) -> str:
    number = attributes & at.CODEC_MASK
    return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown({number})"


def _as_text(fields: dict[str, object]) -> str:
    """Return `name: value` for each field; the timestamp has its type as its name, as in Kafka's
    lines."""
    words = []
    for name, value in fields.items():
        if name == "timestampType":
            continue
        if name == "timestamp":
            name = str(fields["timestampType"])
        words.append(f"{name}: {_word(name, value)}")
    return " ".join(words)


def _word(name: str, value: object) -> str:
    if name == "deleteHorizonMs":
        return optional_long(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def optional_long(value: object) -> str:
    """Return an optional number in the form of Java's OptionalLong, which Kafka's DumpLogSegments
    prints."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


# --- the output lines of records ------------------------------------------------------------------
def record_rows(stored: StoredEntry, *, with_data: bool, decoder: Decoder | None) -> Iterator[Row]:
    """Yield a line for each record of an entry (a batch, or a v0 or v1 message).

    Raises RecordsError for a record that cannot be read or an entry that decompresses to more than
    MAX_ENTRY_BYTES, and KlogError for a record that ``decoder`` does not understand.
    """
    entry = stored.entry
    assert entry is not None
    if isinstance(entry, LegacyView):
        yield from _message_rows(entry, with_data=with_data, decoder=decoder)
        return
    for record in entry.records(MAX_ENTRY_BYTES):
        fields = _record_fields(record)
        text = _record_text(fields)
        base = entry.base_sequence
        delta = record.offset - entry.base_offset
        fields["sequence"] = -1 if base == -1 else add_to_sequence(base, delta)
        fields["headers"] = [
            {"key": header.key, **_data("value", header.value)} for header in record.headers
        ]
        names = ",".join(header.key for header in record.headers)
        text += f" sequence: {fields['sequence']} headerKeys: [{names}]"
        if entry.is_control:
            control = _control_fields(record)
            fields |= control
            text += "".join(f" {name}: {value}" for name, value in control.items())
        yield _with_data(fields, text, record, entry, with_data, decoder)


def _message_rows(entry: LegacyView, *, with_data: bool, decoder: Decoder | None) -> Iterator[Row]:
    inner: Iterator[LegacyView] = repeat(entry)
    if entry.codec is not Codec.NONE:
        inner = split_messages(entry.inflate(MAX_ENTRY_BYTES))
    for record, message in zip(entry.records(MAX_ENTRY_BYTES), inner, strict=False):
        fields = _record_fields(record)
        text = _record_text(fields)
        fields |= {"isValid": message.is_crc_valid(), "crc": message.crc}
        text += f" isValid: {_word('', fields['isValid'])} crc: {message.crc}"
        yield _with_data(fields, text, record, entry, with_data, decoder)


def _record_fields(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestampType": _TIMESTAMP_NAMES[record.timestamp_type],
        "timestamp": record.timestamp_ms,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }


def _record_text(fields: dict[str, object]) -> str:
    return f"| {_as_text(fields)}"


def _control_fields(record: Record) -> dict[str, object]:
    kind = control_type_of(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        assert record.key is not None
        return {"controlType": f"{kind.name}({at.INT16.unpack_from(record.key, 2)[0]})"}
    value = record.value or b""
    epoch = (
        END_TRANSACTION_VALUE.unpack_from(value)[1]
        if len(value) >= END_TRANSACTION_VALUE.size
        else None
    )
    return {"endTxnMarker": kind.name, "coordinatorEpoch": epoch}


def _with_data(
    fields: dict[str, object],
    text: str,
    record: Record,
    entry: BatchView | LegacyView,
    with_data: bool,
    decoder: Decoder | None,
) -> Row:
    """Return the line that `klog dump-log` prints of a record, with key and value if requested. The
    line of a control record has its type already, and the other fields that a COMMIT or ABORT
    marker has."""
    if with_data and not entry.is_control:
        if decoder is None:
            if record.key is not None:
                text += f" key: {_text_of(record.key)}"
            if record.value is not None:
                text += f" payload: {_text_of(record.value)}"
            fields |= _data("key", record.key) | _data("value", record.value)
        else:
            decoded: Decoded = decoder(record)
            text += f" key: {compact_json(decoded.key)} payload: {compact_json(decoded.value)}"
            fields |= {"key": decoded.key, "value": decoded.value}
    return Row("record", fields, printable(text))


def _text_of(data: bytes) -> str:
    return data.decode(errors="replace")


def _data(name: str, data: bytes | None) -> dict[str, object]:
    """Return bytes as a field for programs: as text if they are UTF-8, otherwise as base64 under
    the name with the suffix Base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": b64encode(data).decode()}
