"""Producer ids and power cuts: an id that was handed out is never handed out again."""

from random import Random

import pytest

from tests.support.cluster.local_store import BlockingStore
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import Crashed, MemoryFiles


@pytest.mark.parametrize("seed", range(100))
def test_a_block_of_ids_is_durable_before_its_first_id_is_handed_out(seed: int) -> None:
    random = Random(seed)
    files = MemoryFiles()
    # The log manager creates the directory, durably, before any id is allocated.
    files.make_dirs(DATA)
    files.sync_dir(DATA.parent)
    handed_out: list[int] = []
    for _ in range(6):
        files.crash_at_step = files.steps + random.randint(1, 25)
        try:
            store = BlockingStore(files, DATA)
            for _ in range(random.randint(1, 8)):
                block = store.allocate_producer_ids()
                assert block.first < block.end
                handed_out += (block.first, block.end - 1)
        except Crashed:
            pass
        files = files.crash(random)
    assert len(set(handed_out)) == len(handed_out)
    assert handed_out == sorted(handed_out)
    assert handed_out
