"""Random batches and message sets, damage to them, and what the kernels make of both.

All forms of the kernels have to give the same digest (`tests/support/records/kernel_forms.py`).
"""

import hashlib
import random
from collections.abc import Iterable

from klog_broker.log.validation.kernel_checks import kernel_checks
from klog_broker.log.validation.record_checks import Allowed, Wrapper
from pyspark_klog.errors import KlogError
from pyspark_klog.records.batch import BatchView
from pyspark_klog.records.compression import Codec
from pyspark_klog.records.legacy import encode_message
from tests.support.records.kernel_cases import damage_records, random_batch, random_bytes


def _allowed(rng: random.Random) -> Allowed:
    return Allowed(
        rng.choice([-(2**63), 0, 10**12]),
        rng.choice([2**63 - 1, 10**12]),
        rng.randrange(3) == 0,
        rng.randrange(3) == 0,
        rng.choice([90, 10**6]),
    )


def _of_records(rng: random.Random, batch: bytes) -> object:
    view, forms = BatchView(batch), kernel_checks()
    section = bytes(view.records_section())
    claims = rng.randrange(4) == 0
    base_ms = rng.choice([view.base_timestamp_ms, -1, -(2**63), 2**63 - 1])
    try:
        found = forms.look_at_records(
            section,
            0,
            len(section),
            view.record_count,
            base_ms,
            _allowed(rng),
            claims_append_time=claims,
        )
    except KlogError as error:
        return repr(error)
    written = forms.write_records(section, 0, len(section), found, claims_append_time=claims)
    return found, bytes(written[61:])


def _message_set(rng: random.Random) -> bytes:
    magic = rng.randrange(2)
    times = [-1, 0, 5, 1_700_000_000_000, 2**63 - 1, -(2**63)]
    return b"".join(
        encode_message(
            rng.choice([magic] * 9 + [1 - magic]),
            number,
            rng.choice(times),
            random_bytes(rng, 40),
            random_bytes(rng, 90),
            rng.choice([0] * 20 + [8, 8, 1]),
        )
        for number in range(rng.randrange(1, 12))
    )


def _of_messages(rng: random.Random, data: bytes) -> object:
    forms = kernel_checks()
    wrapper = rng.choice([None, None, Wrapper(0, None), Wrapper(1, None), Wrapper(1, 55)])
    try:
        found = forms.look_at_messages(data, wrapper, _allowed(rng), rng.choice([4, 100]))
    except KlogError as error:
        return repr(error)
    return found, bytes(forms.write_messages(data, wrapper, found)[61:])


def run_seeds(seeds: Iterable[int]) -> str:
    """A digest of all that the kernels make of each seed's bytes."""
    digest = hashlib.sha256()
    for seed in seeds:
        rng = random.Random(seed)
        batch = random_batch(rng, 0, Codec.NONE)
        for data in (batch, damage_records(rng, batch)):
            digest.update(repr(_of_records(rng, data)).encode())
        messages = _message_set(rng)
        cut = messages[: rng.randrange(len(messages)) + 1]
        broken = bytearray(messages)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        for data in (messages, cut, bytes(broken)):
            digest.update(repr(_of_messages(rng, data)).encode())
    return digest.hexdigest()
