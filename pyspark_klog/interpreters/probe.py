"""A script for a Python that Spark would run: prints its versions and packages as JSON in one line.

The JSON is the last line of the output. The script runs in any Python 3, and does not need klog,
which may be missing in that Python. The argument "klog" asks for klog's version, the argument
"packages" for the versions of pyspark, pyarrow, numba and protobuf, the missing packages of Spark
Connect's client, and whether klog's kernels are cached.
"""

import importlib
import json
import sys


def _text(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _klog(found: "dict[str, object]") -> None:
    try:
        package = importlib.import_module("pyspark_klog")
    except Exception as error:
        found["klog_error"] = _text(error)
    else:
        found["klog"] = package.__version__


_CONNECT = ("pandas", "grpcio", "grpcio-status", "googleapis-common-protos")


def _version(name: str) -> "object":
    try:
        return importlib.import_module("importlib.metadata").version(name)
    except Exception:
        return None


def _packages(found: "dict[str, object]") -> None:
    for name in ("pyarrow", "numba", "protobuf"):
        found[name] = _version(name)
    found["connect_missing"] = [name for name in _CONNECT if _version(name) is None]
    try:
        found["pyspark"] = importlib.import_module("pyspark").__version__
        utils = importlib.import_module("pyspark.sql.pandas.utils")
    except Exception as error:
        found["pyspark_error"] = _text(error)
    else:
        try:
            utils.require_minimum_pyarrow_version()
        except Exception as error:
            found["pyarrow_error"] = _text(error)
    try:
        kernels = importlib.import_module("pyspark_klog.records.kernels")
        found["kernels_are_cached"] = kernels.kernels_are_cached()
    except Exception:
        found["kernels_are_cached"] = None


def _main(asked: "list[str]") -> None:
    found: dict[str, object] = {"version": sys.version_info[:3]}
    if "klog" in asked:
        _klog(found)
    if "packages" in asked:
        _packages(found)
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    _main(sys.argv[1:])
