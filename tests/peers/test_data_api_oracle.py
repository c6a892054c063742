"""Generated requests of the APIs that clients use, to Kafka 3.9.1, Kafka 4.3.1 and klog.

Each request is sound but for the fields that were changed; `tests/support/oracle/cases.py` makes it
from the declared fields of the protocol, by a seed. In every field klog's responses must be those
of one of the Kafkas, unless a row of docs/differences-from-kafka.md says otherwise. With the
default seed each row must be needed: a row that no request uses has become false, or lacks a case
(`tests/support/oracle/row_cases.py`).

A request that fails is printed whole. To send it again alone:
``.venv-peers/bin/python -m tests.support.oracle.run --seed S --request N``.
"""

import os
from pathlib import Path

import pytest

from tests.support.oracle.row_cases import NUMBERS
from tests.support.oracle.rows import ROWS
from tests.support.oracle.run import oracle

pytestmark = pytest.mark.peers

_DEFAULT_SEED = 30
SEED = int(os.environ.get("KLOG_ORACLE_SEED", _DEFAULT_SEED))
REQUESTS = 2_000
_SHOWN = 20


def test_every_response_is_one_of_kafkas(tmp_path: Path) -> None:
    print(f"seed {SEED}, {REQUESTS} requests")
    with oracle(SEED, tmp_path) as running:
        played = running.play([*range(REQUESTS), *NUMBERS])
    failed = [each for each in played if each.unexplained()]
    texts = "\n\n".join(each.describe() for each in failed[:_SHOWN])
    assert not failed, f"seed {SEED}: {len(failed)} requests differ\n{texts}"
    used = set().union(*(each.rows() for each in played))
    unused = [f"{row.api} {row.field}: {row.request}" for row in ROWS if row not in used]
    print("rows that no request used:", unused)
    assert not unused or SEED != _DEFAULT_SEED, "remove false rows, or add a case for true ones"
