"""The files of an Iceberg table: on local disks they are durable as soon as they are closed."""

from pathlib import Path
from typing import Any

from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from pyspark_klog.lake_tables.durable import DurableStream


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's files through pyarrow, with an fsync of each local file that is written.

    pyiceberg itself never calls fsync: after a power failure its catalog could name files whose
    bytes have never reached the disk. Object stores need nothing of that kind.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties=properties)

    def new_output(self, location: str) -> Any:
        """Return the file to write; a path or a ``file:`` address gives a `_DurableFile`."""
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            return _DurableFile(location, path, self)
        return super().new_output(location)


class _DurableFile(OutputFile):
    def __init__(self, location: str, path: str, io: PyArrowFileIO) -> None:
        super().__init__(location)
        self._path = Path(path)
        self._io = io

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def to_input_file(self) -> InputFile:
        return PyArrowFile.to_input_file(self._io.new_input(self.location))

    def create(self, overwrite: bool = False) -> OutputStream:
        return DurableStream(self._path, overwrite=overwrite)
