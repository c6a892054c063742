"""The sources of the broker's kernels, by which a broker finds their caches."""

from pathlib import Path

import pytest

from klog_broker.runtime.system.compiling import kernel_source
from klog_broker.warm import KERNEL_MODULES


@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_a_broker_finds_the_source_that_the_warm_up_compiles(module: str) -> None:
    assert Path(kernel_source(module)).is_file()


def test_a_module_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="there is no module"):
        kernel_source("klog_broker.runtime.absent")
