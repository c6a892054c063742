"""`klog broker`: read the configuration, then run until SIGTERM, SIGINT or SIGHUP."""

import gc
import logging
import sys
from pathlib import Path

import click

from klog_broker.cli.common.errors import exit_with
from klog_broker.cli.common.tables import Row, print_table
from klog_broker.config import SETTINGS, BrokerConfig, render
from pyspark_klog.errors import KlogError

_LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

_HELP = """Run a broker in the foreground, until SIGTERM, SIGINT or SIGHUP.

Prints `klog ready on HOST:PORT` to stdout when it accepts requests. Settings from the file override
defaults, and --set overrides both; docs/configuration.md lists all settings.
"""


@click.command("broker", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port of the first listener; 0 for a free port.  [default: 9092]",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Data directory, in place of log.dirs.  [default: ./klog-data]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A properties file with Kafka's names, like broker/server.properties.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="NAME=VALUE", help="One setting; repeatable."
)
@click.option(
    "--print-config", is_flag=True, help="Print every setting with its value and source, and exit."
)
@click.option(
    "--adopt",
    is_flag=True,
    help="Adopt partition folders in the data directory that klog does not know. Use it for one"
    " start, after klog-metadata was lost or Kafka's folders were copied there.",
)
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Give up missing data that klog-metadata knows. Use it for one start, after a disk was"
    " lost or a data directory was removed. The partitions start again, empty.",
)
@click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Write log lines of this level and above to stderr.",
)
# For a process that starts its own broker with a pipe as the broker's stdin (pyspark_klog.testing):
# when that process ends, for whatever reason, its end of the pipe is closed, stdin ends, and the
# broker stops.
@click.option("--until-stdin-ends", is_flag=True, hidden=True)
# An inherited socket on which pyspark_klog.testing adds faults to its own broker.
@click.option("--faults-fd", type=click.IntRange(0), hidden=True)
def command(
    port: int | None,
    data: Path | None,
    config_file: Path | None,
    overrides: tuple[str, ...],
    print_config: bool,
    adopt: bool,
    accept_missing: bool,
    log_level: str,
    until_stdin_ends: bool,
    faults_fd: int | None,
) -> None:
    """Run `klog broker`; the help text is _HELP."""
    try:
        config = BrokerConfig.load(config_file, overrides, port=port, data=data)
        if print_config:
            print_table(("setting", "value", "source"), _rows(config))
            return
        sys.exit(_run(config, log_level, until_stdin_ends, adopt, accept_missing, faults_fd))
    except KlogError as error:
        exit_with(error)


def _run(
    config: BrokerConfig,
    log_level: str,
    until_stdin_ends: bool,
    adopt: bool,
    accept_missing: bool,
    faults_fd: int | None,
) -> int:
    if sys.platform == "win32":
        raise KlogError(
            "the broker runs on Linux and macOS only; on Windows, run it in WSL or on another"
            " machine, and use the connector"
        )
    _write_log_to_stderr(log_level)
    for warning in (*config.overridden, *config.warnings):
        logging.getLogger("klog.config").warning("%s", warning)
    # Imported late: this imports the whole broker, which --print-config does not need. Imports make
    # no garbage, and collections during the imports would take a tenth of the start-up time.
    gc.disable()
    from klog_broker.process import run

    gc.freeze()
    gc.enable()
    return run(
        config,
        until_stdin_ends=until_stdin_ends,
        adopt=adopt,
        accept_missing=accept_missing,
        faults_descriptor=faults_fd,
    )


def _rows(config: BrokerConfig) -> list[Row]:
    """Return a row for each setting, by name. If the value comes from another setting with a
    coarser unit, the source names that setting."""
    rows: list[Row] = []
    for name, row in sorted(SETTINGS.items()):
        source = str(config.source_of(name))
        if not config.is_set(name):
            giver = next((other for other, _ in row.fallbacks if config.is_set(other)), None)
            source = f"{giver}, {config.source_of(giver)}" if giver else source
        value = "***" if row.is_secret and config[name] is not None else render(config[name])
        rows.append((name, "null" if value is None else value, source))
    for name, text in sorted(config.without_effect().items()):
        rows.append((name, text, f"{config.source_of(name)} (no effect)"))
    return rows


def _write_log_to_stderr(level: str) -> None:
    """Write log lines of this level and above to stderr. Lines of numba, the compiler that the
    broker loads, are written only from WARNING on, because numba logs thousands of lines at
    DEBUG."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level,
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
    )
    at_least = max(logging.WARNING, logging.getLevelNamesMapping()[level])
    logging.getLogger("numba").setLevel(at_least)
