"""Prints docs/api.md: the public names of pyspark_klog, from the docstrings of the code."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.docs.pages import table

PUBLIC: Mapping[str, tuple[str, ...]] = {
    "pyspark_klog": (
        *("register", "batch_writer", "lag", "LagListener", "lake", "lake_offsets", "__version__"),
    ),
    "pyspark_klog.testing": (
        "Broker",
        "BrokerFailed",
        "Fault",
        "FaultFailed",
        "Faults",
        "KlogCluster",
        "KlogContainer",
    ),
    "pyspark_klog.testing.plugin": ("klog_broker", "klog_topic"),
    "pyspark_klog.testing.zookeeper": ("ZooKeeper", "ZooKeeperFailed"),
    "pyspark_klog.errors": ("KlogError", "BrokerError", "ErrorCode"),
    "pyspark_klog.ids": ("TopicPartition",),
    "pyspark_klog.client.admin.topics": ("Admin", "NewTopic"),
    "pyspark_klog.client.cluster.blocking_client": ("BlockingClient",),
    "pyspark_klog.client.consumer.offsets": ("list_offsets", "EARLIEST", "LATEST"),
    "pyspark_klog.client.admin.groups": ("committed_offsets",),
    "pyspark_klog.client.group_offsets": ("CommittedOffset",),
    "pyspark_klog.records.builder": ("BatchBuilder",),
    "pyspark_klog.client.producer.producer": ("Producer",),
    "pyspark_klog.client.transactions.producer": (
        *("TransactionalProducer", "OpenTransaction", "end_transaction"),
    ),
    "pyspark_klog.client.errors": (
        *("ClientError", "SettingError", "ConnectionFailed", "RequestTimedOut", "ReplyUnreadable"),
        *("UnsupportedByBroker", "AuthenticationFailed", "TlsFailed", "NoBrokerAvailable"),
        *("LeaderUnknown", "TopicMissing", "TimedOut", "DeliveryFailed", "TransactionMisuse"),
        *("TransactionMustAbort", "ProducerUnusable", "ProducerFenced"),
    ),
}
"""Names that users import, by the module that they import them from. README, docs, examples and
notebooks import no other names of pyspark_klog."""

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "BlockingClient": ("close",),
    "LagListener": (),
    "Producer": ("add", "add_all", "flush", "written_records"),
}
"""Classes with public members that only klog's own code or Spark calls: the members for users."""

_HEAD = """\
<!-- Printed by `./dev python -m tools.docs`; edit the docstrings of the code
     and the list in tools/docs/python_api.py, not this page. -->
# Python API

Look up the public names of the package `pyspark_klog`:

```python
from pyspark_klog import testing
from pyspark_klog.client.admin.topics import Admin, NewTopic

with testing.Broker() as broker, Admin(broker.bootstrap_servers) as admin:
    admin.create_topics([NewTopic("orders", num_partitions=3)])
    assert admin.list_topics() == ["orders"]
```

Names of `pyspark_klog` that this page does not list can change in any release.
[Options](options.md) of the data source and the [settings](configuration.md) of a broker have pages
of their own.
"""

_SENTENCE = re.compile(r"(.+?[.!?])(?:\s+[A-Z`]|$)", re.DOTALL)


def python_api_page() -> str:
    """docs/api.md."""
    return _HEAD + "".join(_section(module, names) for module, names in PUBLIC.items())


def _section(module: str, names: tuple[str, ...]) -> str:
    rows = (row for name in names for row in _rows(module, name))
    return f"\n## {module}\n\n" + table(("name", ""), ((f"`{name}`", doc) for name, doc in rows))


def _rows(module: str, name: str) -> Iterator[tuple[str, str]]:
    """Rows of one name: signature and first sentence; for a class also its public members."""
    source = _defining_module(module, name)
    node, doc = _definition(source, name)
    if isinstance(node, ast.FunctionDef):
        is_fixture = any("fixture" in ast.unparse(each) for each in node.decorator_list)
        yield name if is_fixture else f"{name}({_parameters(node)})", doc
    elif isinstance(node, ast.ClassDef):
        yield f"{name}{_constructor(node)}", doc
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and _is_public(name, member.name):
                is_property = any(ast.unparse(each) == "property" for each in member.decorator_list)
                call = "" if is_property else f"({_parameters(member)})"
                yield f"{name}.{member.name}{call}", _first_sentence(ast.get_docstring(member))
    else:
        yield name, doc


def _is_public(class_name: str, member: str) -> bool:
    if class_name in _MEMBERS:
        return member in _MEMBERS[class_name]
    return not member.startswith("_")


def _defining_module(module: str, name: str) -> str:
    found = getattr(importlib.import_module(module), name)
    is_code = inspect.isclass(found) or inspect.isfunction(found)
    return found.__module__ if is_code else _assigning_module(module, name)


def _assigning_module(module: str, name: str) -> str:
    """The module that assigns a constant: `module`, or the module that it imports the name from."""
    for node in _tree(module).body:
        names = [each.asname or each.name for each in getattr(node, "names", ())]
        if isinstance(node, ast.ImportFrom) and node.module and name in names:
            return _assigning_module(node.module, name)
    return module


def _definition(module: str, name: str) -> tuple[ast.stmt, str]:
    """The statement that defines a name of a module, and the first sentence of its docstring."""
    body = _tree(module).body
    for number, node in enumerate(body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node, _first_sentence(ast.get_docstring(node))
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            after = body[number + 1] if number + 1 < len(body) else None
            text = after.value if isinstance(after, ast.Expr) else None
            doc = text.value if isinstance(text, ast.Constant) else None
            return node, _first_sentence(doc if isinstance(doc, str) else None)
    raise LookupError(f"{module} does not define {name}")


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [name.id for each in targets for name in ast.walk(each) if isinstance(name, ast.Name)]


def _tree(module: str) -> ast.Module:
    file = importlib.import_module(module).__file__
    assert file is not None
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def _constructor(node: ast.ClassDef) -> str:
    """The constructor's parameters; nothing for enumerations and exceptions, which users catch."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return f"({_parameters(member)})"
    bases = {ast.unparse(each) for each in node.bases}
    is_dataclass = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    if not is_dataclass and "NamedTuple" not in bases:
        return ""
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return "(" + ", ".join(_parameter(ast.unparse(f.target), f.value) for f in fields) + ")"


def _parameters(node: ast.FunctionDef) -> str:
    """The parameters with their defaults, without `self` and types."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    found = [_parameter(each.arg, value) for each, value in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        del found[0]
    if arguments.vararg is not None:
        found.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        found.append("*")
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append(_parameter(each.arg, value))
    if arguments.kwarg is not None:
        found.append(f"**{arguments.kwarg.arg}")
    return ", ".join(found)


def _parameter(name: str, default: ast.expr | None) -> str:
    return name if default is None else f"{name}={ast.unparse(default)}"


def _first_sentence(doc: str | None) -> str:
    paragraph = " ".join((doc or "").partition("\n\n")[0].split())
    found = _SENTENCE.match(paragraph)
    sentence = found.group(1) if found else paragraph
    if sentence.endswith("::"):  # an example follows
        sentence = sentence.removesuffix("::") + "."
    return re.sub(r":\w+:`", "`", sentence).replace("``", "`")
