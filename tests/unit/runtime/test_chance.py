"""Chance from a seed: the same ids and jitters each time, in a whole broker too."""

from klog_broker.runtime.system.chance import Chance
from tests.support.cluster.server import log_of, make_topic, start
from tests.support.runtime.memory_files import MemoryFiles


def test_a_seed_gives_the_same_each_time_and_the_system_does_not() -> None:
    def drawn(chance: Chance) -> list[object]:
        return [chance.uuid(), *(chance.below(1000) for _ in range(100)), chance.uuid()]

    assert drawn(Chance(1)) == drawn(Chance(1))
    assert drawn(Chance(1)) != drawn(Chance(2))
    assert drawn(Chance()) != drawn(Chance())


def test_uuids_are_random_ones_by_their_own_word() -> None:
    for chance in (Chance(), Chance(3)):
        made = [chance.uuid() for _ in range(100)]
        assert len(set(made)) == 100
        assert {each.version for each in made} == {4}


def test_what_is_below_a_limit_reaches_each_number_and_no_other() -> None:
    chance = Chance(4)
    assert {chance.below(7) for _ in range(1000)} == set(range(7))
    assert (chance.below(1), chance.below(0), chance.below(-1)) == (0, 0, 0)


def test_a_broker_makes_up_nothing_but_from_its_chance() -> None:
    def made_up(chance: Chance) -> list[str]:
        files = MemoryFiles()
        broker = start(files, chance=chance)
        kept, gone = make_topic(broker, "kept"), make_topic(broker, "gone")
        path = log_of(broker, "gone").path
        broker.services.logs.changes.delete(log_of(broker, "gone").topic_partition)
        (set_aside,) = (name for name in files.list_dir(path.parent) if name.startswith("gone"))
        ids = [broker.services.cluster_id, str(kept), str(gone), set_aside]
        broker.close()
        return ids

    assert made_up(Chance(5)) == made_up(Chance(5))
    first, second = made_up(Chance(5)), made_up(Chance(6))
    assert not set(first) & set(second)
