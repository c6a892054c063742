"""The metrics of the controller and of the ZooKeeper session."""

from klog_broker.controller.decisions.election_reason import ElectionReason
from klog_broker.monitoring.cluster_metrics import controller_metrics, zookeeper_metrics
from pyspark_klog.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from pyspark_klog.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from tests.support.cluster.controller import TOPIC_ID, Controlled
from tests.support.cluster.zookeeper import SESSION_MS, ClusterWorld
from tests.support.monitoring.scraping import Samples, section_samples

SESSION = "kafka_server_sessionexpirelistener_zookeeper"
STATS = "kafka_controller_controllerstats"
EVENTS = "kafka_controller_controllereventmanager"


def controller_samples(cluster: Controlled) -> Samples:
    return section_samples(controller_metrics, controller=cluster.controller)


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def session_samples(world: ClusterWorld, sessions: object) -> tuple[float | None, ...]:
    """Return: is connected, connects, disconnects, expirations."""
    found = section_samples(zookeeper_metrics, zookeeper_counts=sessions)
    return (
        value(found, "klog_zookeeper_session_connected"),
        value(found, f"{SESSION}syncconnects_total"),
        value(found, f"{SESSION}disconnects_total"),
        value(found, f"{SESSION}expires_total"),
    )


def test_the_session_and_its_disconnects_are_counted() -> None:
    world = ClusterWorld()
    sessions, client = world.sessions()
    assert session_samples(world, sessions.counts) == (0, 0, 0, 0)
    world.until(lambda: sessions.counts.is_connected)
    assert session_samples(world, sessions.counts) == (1, 1, 0, 0)
    client.reset()
    world.until(lambda: not sessions.counts.is_connected)
    assert session_samples(world, sessions.counts) == (0, 1, 1, 0)
    world.until(lambda: sessions.counts.is_connected)
    assert session_samples(world, sessions.counts) == (1, 2, 1, 0)
    client.cut()
    world.advance(3 * SESSION_MS)
    client.mend()
    world.until(lambda: sessions.counts.is_connected)
    assert session_samples(world, sessions.counts) == (1, 3, 2, 1)


def test_a_standalone_broker_has_no_session_and_no_controller() -> None:
    assert section_samples(zookeeper_metrics, zookeeper_counts=None) == {}
    assert section_samples(controller_metrics, controller=None) == {}


def test_elections_are_counted_by_reason_with_their_duration() -> None:
    cluster = Controlled.of_three()
    cluster.create(2, 3)
    cluster.create(2, 3, name="u")
    cluster.unregister_broker(2)
    found = controller_samples(cluster)
    reasons = {dict(of)["reason"]: n for (name, of), n in found.items() if "elected" in name}
    none = dict.fromkeys(map(str, ElectionReason), 0)
    assert reasons == none | {"new-partition": 2, "broker-failed": 2}
    # Two topics were created, and one change of the brokers elected both leaders again.
    assert value(found, f"{STATS}_leaderelectionrateandtimems_count") == 3
    assert (value(found, f"{STATS}_leaderelectionrateandtimems_sum") or 0) > 0
    assert value(found, f"{STATS}_uncleanleaderelections_total") == 0


def test_an_unclean_election_is_counted() -> None:
    cluster = Controlled.of_three()
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    cluster.unregister_broker(2)
    cluster.register(3)
    assert value(controller_samples(cluster), f"{STATS}_uncleanleaderelections_total") == 0
    cluster.unclean.add("t")
    cluster.controller.elect_again()
    cluster.advance(500)
    found = controller_samples(cluster)
    assert value(found, f"{STATS}_uncleanleaderelections_total") == 1
    assert value(found, "klog_controller_events_total", event="UncleanLeaderElectionEnable") == 1


def test_events_are_counted_by_name_with_their_wait_and_duration() -> None:
    cluster = Controlled.of_three()
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=cluster.epoch(2))
    cluster.call(cluster.controller.shut_down, request)
    cluster.unregister_broker(2)
    found = controller_samples(cluster)
    events = {
        dict(of)["event"]: count
        for (name, of), count in found.items()
        if name == "klog_controller_events_total"
    }
    assert events.keys() == {"ControllerChange", "ControlledShutdown", "BrokerChange"}
    assert (events["ControllerChange"], events["ControlledShutdown"]) == (1, 1)
    assert (value(found, "klog_controller_event_seconds_total", event="BrokerChange") or 0) > 0
    assert value(found, f"{EVENTS}_eventqueuetimems_count") == sum(events.values())
    assert value(found, f"{EVENTS}_eventqueuesize") == 0
    for _ in range(2):
        ids = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epoch(1))
        cluster.controller.allocate_producer_ids(ids, lambda _: None)
    assert value(controller_samples(cluster), f"{EVENTS}_eventqueuesize") == 1


def test_the_controller_names_a_topic_whose_deletion_waits_for_a_broker() -> None:
    cluster = Controlled.of_three()
    cluster.create(2, 3)
    cluster.unregister_broker(3)
    cluster.call(cluster.controller.delete_topic, "t", TOPIC_ID)
    assert cluster.controller.deleting_topics == ("t",)
    cluster.register(3)
    assert cluster.controller.deleting_topics == ()
