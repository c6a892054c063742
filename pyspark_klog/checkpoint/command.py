"""Runs `python -m pyspark_klog checkpoint show|check|move`, and returns the exit code."""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark_klog.check.items import ItemVerdict
from pyspark_klog.checkpoint.cluster import ClusterOffsets, Target
from pyspark_klog.checkpoint.contents import Checkpoint, read_checkpoint
from pyspark_klog.checkpoint.execution import execute_moves
from pyspark_klog.checkpoint.files import CheckpointFiles, open_files
from pyspark_klog.checkpoint.moves import (
    Chosen,
    LogRange,
    Move,
    Selection,
    choose_partitions,
    plan_moves,
    read_partitions,
)
from pyspark_klog.checkpoint.refusals import (
    effect_of,
    planned_batch_refusal,
    position_to_move,
    state_refusals,
)
from pyspark_klog.checkpoint.report import (
    check_items,
    move_json,
    move_lines,
    summary_json,
    summary_lines,
)
from pyspark_klog.checkpoint.sessions import running_query_refusal
from pyspark_klog.client.admin.reset_times import time_of_datetime, time_of_duration
from pyspark_klog.client.clock import epoch_ms
from pyspark_klog.client.errors import SettingError
from pyspark_klog.errors import KlogError
from pyspark_klog.ids import TopicPartition
from pyspark_klog.properties import PropertiesError, read_properties
from pyspark_klog.spark.errors import OffsetError, OptionError
from pyspark_klog.spark.offsets import EARLIEST, LATEST, as_json, read_offsets

_OK, _FAILED, _USAGE = 0, 1, 2
_TOPIC = re.compile(r"([^:]+)(?::([0-9]+(?:,[0-9]+)*))?")


def run_checkpoint_command(given: argparse.Namespace) -> int:
    """Run the command that the arguments name. Return 0; 1 if a check failed or a move was
    refused; 2 if the arguments are wrong."""
    run = {"show": _show, "check": _check, "move": _move}[given.checkpoint_command]
    try:
        return run(given)
    except KlogError as error:
        _warn([str(error)])
        usage = SettingError | PropertiesError | OptionError | OffsetError
        return _USAGE if isinstance(error, usage) else _FAILED


def _show(given: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(open_files(given.path))
    logs = _logs(given, checkpoint)
    if given.as_json:
        _print_json(summary_json(checkpoint, logs))
    else:
        _print(summary_lines(checkpoint, logs))
    return _OK


def _check(given: argparse.Namespace) -> int:
    checkpoint = read_checkpoint(open_files(given.path))
    items = list(check_items(checkpoint, _logs(given, checkpoint)))
    if given.as_json:
        _print_json([{"verdict": each.verdict.value, "text": each.text} for each in items])
    else:
        _print(map(str, items))
    return _FAILED if any(each.verdict is ItemVerdict.FAIL for each in items) else _OK


def _logs(
    given: argparse.Namespace, checkpoint: Checkpoint
) -> dict[TopicPartition, LogRange] | None:
    if given.bootstrap_servers is None:
        return None
    ends = [each for each in (checkpoint.position, checkpoint.planned) if each is not None]
    topics = {partition.topic for each in ends for partition in read_partitions(each)}
    if not topics:
        return {}
    with ClusterOffsets(given.bootstrap_servers, _settings(given.command_config), topics) as asked:
        return asked.logs()


def _settings(file: Path | None) -> dict[str, str]:
    return {entry.name: entry.text for entry in read_properties(file)} if file else {}


# --- moving ---------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _MovePlan:
    """A move and what the user should know about it."""

    chosen: Chosen
    moves: list[Move]
    logs: dict[TopicPartition, LogRange]
    refusals: list[str]


def _move(given: argparse.Namespace) -> int:
    if given.execute and given.dry_run:
        raise SettingError("--execute and --dry-run: expected one of them")
    files = open_files(given.path)
    checkpoint = read_checkpoint(files)
    plan = _plan(given, checkpoint)
    is_executed = given.execute and not plan.refusals and bool(plan.moves)
    backup = None
    if is_executed:
        name = datetime.fromtimestamp(epoch_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        backup = execute_moves(files, checkpoint, plan.moves, name)
    if given.as_json:
        _print_json(
            {
                "executed": is_executed,
                "moves": move_json(plan.moves),
                "refusals": plan.refusals,
                "backup": backup,
            }
        )
    else:
        _print(move_lines(plan.moves, plan.logs))
    _warn(_move_notes(plan, files, checkpoint, backup))
    _warn(f"refused: {reason}" for reason in plan.refusals)
    return _FAILED if plan.refusals else _OK


def _plan(given: argparse.Namespace, checkpoint: Checkpoint) -> _MovePlan:
    position = position_to_move(checkpoint)
    target = _target(given)
    selection: Selection = _selection(given.topics)
    if target.offsets is not None:
        if selection:
            raise SettingError("--to-offsets names the partitions; expected no --topic with it")
        selection = _named(target)
    topics = selection.keys() or {partition.topic for partition in read_partitions(position)}
    if not topics:
        choose_partitions(position, {}, {})
    with ClusterOffsets(given.bootstrap_servers, _settings(given.command_config), topics) as asked:
        logs = asked.logs()
        chosen = choose_partitions(position, selection, logs)
        targets = asked.resolve(target, chosen.moved, logs)
    moves = plan_moves(position, chosen, targets)
    refusals = [
        running_query_refusal(checkpoint.query_id),
        planned_batch_refusal(checkpoint, may_empty=given.empty_planned_batch),
    ]
    found = [reason for reason in refusals if reason is not None]
    if not given.ignore_state:
        found += state_refusals(checkpoint, effect_of(moves, logs))
    return _MovePlan(chosen, moves, logs, found if moves else [])


def _target(given: argparse.Namespace) -> Target:
    if given.to_datetime is not None:
        return Target(time_ms=time_of_datetime(given.to_datetime))
    if given.by_duration is not None:
        return Target(time_ms=time_of_duration(given.by_duration))
    if given.to_offsets is not None:
        offsets, topics = read_offsets(given.to_offsets, "--to-offsets")
        return Target(offsets=offsets, topics=topics)
    return Target(everywhere=EARLIEST if given.to_earliest else LATEST)


def _named(target: Target) -> Selection:
    """The partitions that the offsets of --to-offsets name."""
    numbers: dict[str, set[int]] = {}
    for partition in target.offsets or {}:
        numbers.setdefault(partition.topic, set()).add(partition.partition)
    found: dict[str, frozenset[int] | None] = {t: frozenset(n) for t, n in numbers.items()}
    return found | dict.fromkeys(target.topics or {})


def _selection(texts: Iterable[str]) -> dict[str, frozenset[int] | None]:
    found: dict[str, frozenset[int] | None] = {}
    for text in texts:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise SettingError(
                f"--topic {text}: expected TOPIC, or TOPIC:0,1 for some of its partitions"
            )
        topic, numbers = match.groups()
        if topic in found:
            raise SettingError(f"--topic names {topic} twice; expected TOPIC:0,1 once")
        found[topic] = frozenset(map(int, numbers.split(","))) if numbers else None
    return found


def _move_notes(
    plan: _MovePlan, files: CheckpointFiles, checkpoint: Checkpoint, backup: str | None
) -> Iterable[str]:
    for partition in sorted(plan.chosen.unread):
        yield (
            f"{partition} is not in the checkpoint and was not moved: the query reads it from its "
            "beginning, if it reads this partition"
        )
    if checkpoint.planned is not None and plan.moves and not plan.refusals:
        yield (
            f"batch {checkpoint.planned_batch}, which was not committed, runs again without "
            "records of the moved partitions"
        )
    if not plan.moves:
        yield "nothing to move: the checkpoint has these offsets already"
    elif backup is None:
        yield (
            f"nothing was changed; stop the query of {files.path}, then add --execute to change "
            "its offsets"
        )
    else:
        back = {m.partition: m.old for m in plan.moves if m.old is not None and m.new is not None}
        yield (
            f"batch {checkpoint.committed_batch} ends at the new offsets now; the files as they "
            f"were are in {backup}; to move back: --to-offsets '{as_json(back)}'"
        )


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _print_json(value: object) -> None:
    _print([json.dumps(value, indent=2)])


def _warn(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stderr.write(f"klog: {line}\n")
