"""Codecs: their output, refused input, and no bomb takes more memory than its bound."""

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from pyspark_klog.records import lz4_v0
from pyspark_klog.records.compression import (
    LEVELS,
    Codec,
    Inflated,
    codec_of,
    compress,
    decompress,
    inflate_produced,
)
from pyspark_klog.records.errors import (
    CorruptRecords,
    DamagedCompression,
    DecompressedTooLarge,
    UnsupportedCodec,
)

DATA = b"".join(b"record %d, " % (i * i) for i in range(20_000))  # more than one block of any codec
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
XERIAL_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


def xerial(*blocks: bytes) -> bytes:
    return XERIAL_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy_block(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


@every_codec
def test_what_goes_in_comes_out(codec: Codec) -> None:
    packed = compress(codec, DATA)
    assert len(packed) < len(DATA) // 2
    for source in (packed, bytearray(packed), memoryview(b"x" + packed + b"y")[1:-1]):
        assert decompress(codec, source, max_bytes=len(DATA)) == DATA


@every_codec
def test_nothing_is_something_to_each_codec(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), max_bytes=0) == b""
    with pytest.raises(CorruptRecords):
        decompress(codec, b"", max_bytes=100)


def test_no_codec_is_a_copy() -> None:
    assert compress(Codec.NONE, memoryview(DATA)) == DATA
    assert decompress(Codec.NONE, memoryview(DATA), max_bytes=0) == DATA


@every_codec
def test_one_byte_over_the_bound_is_refused_and_the_bound_named(codec: Codec) -> None:
    packed = compress(codec, DATA)
    limit = len(DATA) - 1
    with pytest.raises(DecompressedTooLarge, match=f"the limit of {limit} bytes"):
        decompress(codec, packed, max_bytes=limit)


def in_parts(codec: Codec, parts: int) -> bytes:
    """Compress no bytes, into ``parts`` members, frames or blocks."""
    if codec is Codec.SNAPPY:
        return xerial(*[snappy_block(b"")] * (parts - 1))  # the stream's head is one
    if codec is Codec.ZSTD:
        # A frame whose blocks are raw and empty, the last one marked.
        return bytes.fromhex("28b52ffd0040") + bytes(3) * (parts - 2) + b"\1\0\0"
    return compress(codec, b"") * parts


@every_codec
def test_parts_have_a_bound_where_one_is_given(codec: Codec) -> None:
    packed = in_parts(codec, 50)
    assert decompress(codec, packed, max_bytes=0) == b""
    assert decompress(codec, packed, max_bytes=0, max_parts=50) == b""
    with pytest.raises(DecompressedTooLarge, match="more than 49 parts"):
        decompress(codec, packed, max_bytes=0, max_parts=49)


def test_blocks_of_v0_lz4_frames_have_a_bound_too() -> None:
    packed = compress(Codec.LZ4, bytes(300_000), magic=0)  # five blocks and a frame
    assert decompress(Codec.LZ4, packed, magic=0, max_parts=6) == bytes(300_000)
    for parts in (1, 5):
        with pytest.raises(DecompressedTooLarge):
            decompress(Codec.LZ4, packed, magic=0, max_parts=parts)
    assert decompress(Codec.LZ4, packed * 3, magic=0, max_parts=18) == bytes(900_000)
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.LZ4, packed * 3, magic=0, max_parts=17)


@pytest.mark.parametrize("seed", range(20))
def test_gzip_of_any_shape_comes_out_whole(seed: int) -> None:
    """Output in steps, with input and without, on and off their borders."""
    rng = random.Random(seed)
    sizes = rng.choices([1, 1023, 65_536, 262_144, 262_145, 700_000], k=rng.randrange(1, 5))
    data = b"".join(rng.randbytes(size) if rng.randrange(2) else bytes(size) for size in sizes)
    packed = compress(Codec.GZIP, data, level=rng.choice([0, 1, 9]))
    assert decompress(Codec.GZIP, packed) == data
    assert decompress(Codec.GZIP, packed, max_bytes=len(data)) == data
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.GZIP, packed, max_bytes=len(data) - 1)
    with pytest.raises(CorruptRecords):
        decompress(Codec.GZIP, packed[:-1])


@every_codec
def test_streams_one_after_the_other_are_one(codec: Codec) -> None:
    packed = compress(codec, b"one") + compress(codec, DATA) + compress(codec, b"")
    assert decompress(codec, packed, max_bytes=len(DATA) + 3) == b"one" + DATA
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, max_bytes=len(DATA) + 2)


def test_v0_lz4_frames_one_after_the_other() -> None:
    packed = compress(Codec.LZ4, DATA, magic=0) + compress(Codec.LZ4, b"!", magic=0)
    assert decompress(Codec.LZ4, packed, magic=0, max_bytes=len(DATA) + 1) == DATA + b"!"


@every_codec
def test_a_cut_off_end_is_noticed(codec: Codec) -> None:
    packed = compress(codec, DATA[:5000])
    for keep in range(len(packed)):
        if codec is Codec.SNAPPY and 0 <= keep - len(XERIAL_HEAD) < 4:
            continue  # an empty stream, and bytes behind it that are no length of a block
        with pytest.raises(CorruptRecords):
            decompress(codec, packed[:keep], max_bytes=1 << 20)


@every_codec
@pytest.mark.parametrize("rest", [b"x", b"\0\0\0", b"left over", b"left over " * 100])
def test_bytes_behind_a_stream_are_ignored_as_by_kafka(codec: Codec, rest: bytes) -> None:
    packed = compress(codec, DATA) + rest
    if codec is Codec.ZSTD or (codec is Codec.SNAPPY and len(rest) > 3):
        with pytest.raises(DamagedCompression):
            decompress(codec, packed, max_bytes=len(DATA))
        return
    assert decompress(codec, packed, max_bytes=len(DATA)) == DATA
    produced = inflate_produced(codec, packed, magic=2, max_bytes=len(DATA))
    assert (produced.data, produced.is_plain) == (DATA, False)
    if codec is not Codec.ZSTD:
        old = compress(codec, DATA, magic=0) + rest
        assert decompress(codec, old, magic=0, max_bytes=len(DATA)) == DATA


@every_codec
def test_one_stream_is_plain_and_two_are_not(codec: Codec) -> None:
    one, two = compress(codec, b"one"), compress(codec, DATA)
    assert inflate_produced(codec, one, magic=2, max_bytes=3) == Inflated(b"one", True)
    both = inflate_produced(codec, one + two, magic=2, max_bytes=len(DATA) + 3)
    if codec is Codec.LZ4:  # Kafka's clients read the first frame only
        assert both == Inflated(b"one", False, has_further_frames=True)
    else:
        assert both == Inflated(b"one" + DATA, codec is Codec.ZSTD)


def test_behind_an_lz4_frame_a_damaged_one_is_ignored_and_a_whole_one_read() -> None:
    one, two = compress(Codec.LZ4, b"one"), compress(Codec.LZ4, DATA)
    for rest in (two[:-5], two[:9] + b"\xff" * 50):
        for magic, packed in ((2, one + rest), (0, compress(Codec.LZ4, b"one", magic=0) + rest)):
            assert decompress(Codec.LZ4, packed, magic=magic, max_bytes=len(DATA)) == b"one"
    assert decompress(Codec.LZ4, one + two, max_bytes=len(DATA) + 3) == b"one" + DATA


def test_behind_a_gzip_member_a_damaged_one_is_refused() -> None:
    one, two = compress(Codec.GZIP, b"one"), compress(Codec.GZIP, DATA)
    with pytest.raises(DamagedCompression):
        decompress(Codec.GZIP, one + two[:-1])
    assert decompress(Codec.GZIP, one + two[:18]) == b"one"  # too short for a member


def test_lz4_that_java_cannot_read_is_read_from_files_and_refused_from_producers() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"extra"
    linked = lz4.frame.compress(DATA, block_linked=True, store_size=False)
    for packed in (skippable + compress(Codec.LZ4, DATA), linked):
        assert decompress(Codec.LZ4, packed, max_bytes=len(DATA)) == DATA
        with pytest.raises(DamagedCompression, match="which Java's clients do not"):
            inflate_produced(Codec.LZ4, packed, magic=2, max_bytes=len(DATA))


def bomb(codec: Codec) -> bytes:
    """32 MiB of zeros in some KiB (snappy: 1.5 MiB), built without klog."""
    zeros = bytes(32 << 20)
    if codec is Codec.GZIP:
        return gzip.compress(zeros)
    if codec is Codec.SNAPPY:
        return xerial(*[snappy_block(zeros[: 1 << 20])] * 32)
    if codec is Codec.LZ4:
        return bytes(lz4.frame.compress(zeros, block_size=lz4.frame.BLOCKSIZE_MAX4MB))
    return zstandard.ZstdCompressor().compress(zeros)


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_codec
@pytest.mark.parametrize("magic", [0, 2])
def test_a_bomb_takes_a_small_multiple_of_the_bound(codec: Codec, magic: int) -> None:
    if codec is Codec.ZSTD:
        magic = 2
    packed = bomb(codec)
    bound = 1 << 20

    def explode() -> None:
        with pytest.raises(DecompressedTooLarge, match=str(bound)):
            decompress(codec, packed, magic=magic, max_bytes=bound)

    explode()  # imports and caches are not counted
    assert peak_bytes(explode) < 4 * bound + 2 * len(packed)


def test_sizes_that_are_claimed_take_no_memory() -> None:
    claims_much = b"\xff\xff\xff\x07" + b"\x00a"  # snappy: 16 MiB in six bytes
    for bound in (1 << 20, 1 << 30):
        with pytest.raises(DamagedCompression, match="cannot inflate to 16777215 bytes"):
            decompress(Codec.SNAPPY, claims_much, max_bytes=bound)
    # zstd: a frame of 1 TiB content, then one that wants a window of 2 GiB.
    content = struct.pack("<IBQ", 0xFD2FB528, 0b11100000, 1 << 40) + b"\x01\x00\x00"
    window = struct.pack("<IBB", 0xFD2FB528, 0, (31 - 10) << 3) + b"\x01\x00\x00"
    # lz4: 1 TiB content.
    plain = lz4.frame.compress(b"abc", store_size=True)
    lying = bytearray(plain)
    lying[6:14] = struct.pack("<Q", 1 << 40)
    lying[14] = lz4_v0.xxh32(bytes(lying[4:14])) >> 8 & 0xFF

    def claim() -> None:
        for codec, data in (
            (Codec.ZSTD, content),
            (Codec.ZSTD, window),
            (Codec.LZ4, bytes(lying)),
        ):
            with pytest.raises(CorruptRecords):
                decompress(codec, data, max_bytes=1 << 30)

    claim()
    assert peak_bytes(claim) < 2 << 20


def test_snappy_is_read_bare_and_framed() -> None:
    assert decompress(Codec.SNAPPY, snappy_block(DATA), max_bytes=len(DATA)) == DATA
    framed = xerial(snappy_block(b"one"), snappy_block(b"two"))
    assert decompress(Codec.SNAPPY, framed, max_bytes=6) == b"onetwo"
    assert compress(Codec.SNAPPY, b"one").startswith(XERIAL_HEAD)


@pytest.mark.parametrize(
    "damaged",
    [
        XERIAL_HEAD + struct.pack(">i", 0),
        XERIAL_HEAD + struct.pack(">i", -1) + b"\x00",
        XERIAL_HEAD + struct.pack(">i", 2**31 - 1) + b"\x00",
        b"\xff" * 8,
        b"\x05\x10ab",
    ],
)
def test_damaged_snappy_is_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptRecords, match="snappy"):
        decompress(Codec.SNAPPY, damaged, max_bytes=1000)


def test_v0_lz4_has_the_wrong_checksum_and_is_read_with_either() -> None:
    right = compress(Codec.LZ4, DATA, magic=1)
    wrong = compress(Codec.LZ4, DATA, magic=0)
    differing = [at for at in range(len(right)) if right[at] != wrong[at]]
    assert differing == [6]
    for frames in (right, wrong):
        assert decompress(Codec.LZ4, frames, magic=0, max_bytes=len(DATA)) == DATA
    with pytest.raises(CorruptRecords, match="lz4"):
        decompress(Codec.LZ4, wrong, magic=1, max_bytes=len(DATA))


@pytest.mark.parametrize("store_size", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_v0_lz4_headers_of_every_shape(store_size: bool, checksums: bool, linked: bool) -> None:
    frame = bytearray(
        lz4.frame.compress(
            DATA,
            store_size=store_size,
            content_checksum=checksums,
            block_checksum=checksums,
            block_linked=linked,
        )
    )
    frame[14 if store_size else 6] ^= 0x55
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"extra"
    packed = skippable + bytes(frame) + bytes(frame)
    assert decompress(Codec.LZ4, packed, magic=0, max_bytes=2 * len(DATA)) == DATA + DATA


def test_lz4_is_written_in_blocks_that_kafka_reads() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, DATA))
    assert (info["block_size"], info["block_linked"], info["content_size"]) == (65536, False, 0)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 15, 16, 17, 31, 40])
def test_xxh32_is_the_checksum_of_lz4_frames(length: int) -> None:
    """The library's frames end with the xxHash32 of their content."""
    data = bytes(range(7, 7 + length))
    frame = lz4.frame.compress(data, content_checksum=True)
    assert lz4_v0.xxh32(data) == struct.unpack("<I", frame[-4:])[0]


def test_zstd_without_content_size_and_with_extra_frames() -> None:
    streaming = zstandard.ZstdCompressor().compressobj()
    unsized = streaming.compress(DATA) + streaming.flush()
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"xyz"
    checked = zstandard.ZstdCompressor(write_checksum=True).compress(b"!")
    packed = unsized + skippable + checked
    assert decompress(Codec.ZSTD, packed, max_bytes=len(DATA) + 1) == DATA + b"!"


def test_damaged_gzip_is_refused() -> None:
    packed = bytearray(compress(Codec.GZIP, DATA))
    packed[-6] ^= 1  # in its CRC
    with pytest.raises(CorruptRecords, match="gzip"):
        decompress(Codec.GZIP, packed, max_bytes=len(DATA))
    with pytest.raises(CorruptRecords, match="gzip"):
        decompress(Codec.GZIP, zlib.compress(DATA), max_bytes=len(DATA))


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_needs_v2(magic: int) -> None:
    with pytest.raises(UnsupportedCodec, match=f"zstd needs record format 2.*format {magic}"):
        compress(Codec.ZSTD, DATA, magic=magic)
    with pytest.raises(UnsupportedCodec):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, DATA), magic=magic, max_bytes=len(DATA))


def test_numbers_of_codecs() -> None:
    assert [codec_of(0x78 | number) for number in range(5)] == list(Codec)
    for number in (5, 6, 7):
        with pytest.raises(UnsupportedCodec, match=f"codec {number} is unknown"):
            codec_of(number)


@pytest.mark.parametrize("codec", list(LEVELS))
def test_levels(codec: Codec) -> None:
    lowest, highest = LEVELS[codec][0], LEVELS[codec][-1]
    for level in (lowest, highest, 1, None):
        packed = compress(codec, DATA[:20_000], level=level)
        assert decompress(codec, packed, max_bytes=20_000) == DATA[:20_000]
    for level in (lowest - 1, highest + 1):
        with pytest.raises(ValueError, match=f"allowed is {lowest} to {highest}"):
            compress(codec, DATA, level=level)
    assert len(compress(codec, DATA, level=highest)) < len(compress(codec, DATA, level=1))


def test_snappy_has_no_levels() -> None:
    with pytest.raises(ValueError, match="level 1 for snappy: allowed is none"):
        compress(Codec.SNAPPY, DATA, level=1)
