"""The metadata store is given to a broker, as the clock and the files are."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from klog_broker.lifecycle.exit_codes import CannotStart, ExitCode
from klog_broker.lifecycle.log_opening import open_local_store
from klog_broker.metadata.errors import StoreRefused
from klog_broker.metadata.local import LocalStore
from klog_broker.runtime.disk.files import Files
from klog_broker.runtime.system.chance import Chance
from klog_broker.topics.adoption import AdoptingStore
from pyspark_klog.ids import BrokerId
from tests.support.cluster.server import make_topic, start
from tests.support.log.harness import DATA
from tests.support.runtime.memory_files import MemoryFiles


def test_a_broker_keeps_its_metadata_in_the_store_that_it_is_given() -> None:
    elsewhere, closed = MemoryFiles(), []

    class Elsewhere(LocalStore):
        def close(self) -> None:
            closed.append(self)

    def open_store(
        files: Files, directories: Sequence[Path], broker_id: BrokerId, chance: Chance
    ) -> AdoptingStore:
        assert files is disk
        assert (list(directories), broker_id) == ([DATA], BrokerId(0))
        elsewhere.make_dirs(DATA)
        return Elsewhere.open(elsewhere, DATA, broker_id, cluster_id="given", chance=chance)

    disk = MemoryFiles()
    broker = start(disk, open_store=open_store)
    assert broker.services.cluster_id == "given"
    make_topic(broker, "t")
    broker.close()
    assert closed == [broker.services.metadata]
    assert "klog-metadata" in elsewhere.list_dir(DATA)
    assert "klog-metadata" not in disk.list_dir(DATA)
    again = start(disk, open_store=open_store)
    assert list(again.services.metadata.image.topics) == ["t"]
    again.close()


def test_a_store_that_refuses_ends_the_start_before_anything_is_changed() -> None:
    def open_store(*_: object) -> AdoptingStore:
        raise StoreRefused("not this one")

    disk = MemoryFiles()
    with pytest.raises(CannotStart, match="not this one") as caught:
        start(disk, open_store=open_store)
    assert caught.value.exit_code is ExitCode.REFUSED_DIRECTORY
    assert not disk.exists(DATA)
    start(disk, open_store=open_local_store).close()
