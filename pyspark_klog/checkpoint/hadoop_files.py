"""The files of a checkpoint on a file system of Hadoop, through a Spark session's JVM."""

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_klog.checkpoint.errors import CheckpointError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView

_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$",
    "org.apache.spark.sql.execution.streaming.CheckpointFileManager$",
)
"""Spark's class that replaces files of a checkpoint: since Spark 4.1, and in Spark 4.0."""


class HadoopFiles:
    """A checkpoint at a URI. Files are replaced by the class that the session uses for checkpoints:
    by default it renames a new file over the old one."""

    def __init__(self, path: str) -> None:
        session = SparkSession.getActiveSession() or _new_session()
        jvm: JVMView | None = getattr(session, "_jvm", None)
        if jvm is None:
            raise CheckpointError(
                f"{path} cannot be read through a session of Spark Connect: run the command where "
                "a classic session is possible, for example on the host of the Connect server"
            )
        self._path = path.rstrip("/")
        self._jvm: Any = jvm
        # Hadoop's settings with those of the session, for example of Spark's class for checkpoints.
        self._conf = session._jsparkSession.sessionState().newHadoopConf()
        self._root = self._jvm.org.apache.hadoop.fs.Path(self._path)
        self._system = self._call("use", self._root.getFileSystem, self._conf)

    @property
    def path(self) -> str:
        return self._path

    def names(self, folder: str) -> list[str]:
        path = self._child(folder)
        if not self._call("read", self._system.exists, path):
            return []
        found = self._call("read", self._system.listStatus, path)
        return sorted(status.getPath().getName() for status in found)

    def read(self, name: str) -> str | None:
        path = self._child(name)
        if not self._call("read", self._system.exists, path):
            return None
        stream = self._call("read", self._system.open, path)
        try:
            return str(
                self._call(
                    "read", self._jvm.org.apache.commons.io.IOUtils.toString, stream, "UTF-8"
                )
            )
        finally:
            stream.close()

    def replace(self, name: str, text: str) -> None:
        path = self._child(name)
        self._call("write", self._system.mkdirs, path.getParent())
        manager = self._call("write", self._manager().create, path.getParent(), self._conf)
        self._write(self._call("write", manager.createAtomic, path, True), text)
        if self.read(name) != text:
            # Spark's FileSystemBasedCheckpointFileManager only logs that its rename failed, as HDFS
            # lets it do if the file exists. A crash here leaves a file that Spark refuses to read.
            self._write(self._call("write", self._system.create, path, True), text)
        if self.read(name) != text:
            raise CheckpointError(f"{self._path}/{name} has other contents than were written")

    def _write(self, stream: Any, text: str) -> None:
        self._call("write", stream.write, bytearray(text.encode()))
        self._call("write", stream.close)

    def delete(self, name: str) -> None:
        self._call("delete", self._system.delete, self._child(name), False)

    def _child(self, name: str) -> "JavaObject":
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def _manager(self) -> Any:
        loadable = self._jvm.org.apache.spark.util.Utils.classIsLoadable
        name = next(name for name in _MANAGERS if loadable(name))
        return self._jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    def _call(self, verb: str, function: Any, *arguments: Any) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return function(*arguments)
        except Py4JJavaError as error:
            raise self._unusable(verb, str(error.java_exception.toString())) from None
        except PySparkException as error:
            raise self._unusable(verb, str(error)) from None

    def _unusable(self, verb: str, reason: str) -> CheckpointError:
        return CheckpointError(
            f"cannot {verb} the checkpoint {self._path}: {reason.partition(chr(10))[0]}; check the "
            "URI, the rights, and that the session has the jars and settings of its file system"
        )


def _new_session() -> SparkSession:
    builder = SparkSession.builder.appName("klog checkpoint")
    return builder.config("spark.ui.enabled", "false").getOrCreate()
