"""The required state at the end of a run, when all brokers live and no fault is left."""

from collections.abc import Sequence

from klog_broker.controller.zookeeper.controller_election import ElectionState
from klog_broker.membership.member import ZooKeeperMember
from klog_broker.runtime.zookeeper.requests import Exists, Get
from pyspark_klog.znodes.cluster import decode_controller
from pyspark_klog.znodes.paths import CONTROLLER, broker_path
from tests.simulation.elections.checks import Checks


def unhealed(checks: Checks, members: Sequence[ZooKeeperMember], count: int) -> str:
    """A difference from the required state of ``count`` joined brokers; empty if there is none."""
    checks.follow()
    joined = [each for each in members if hasattr(each, "election")]
    if len(joined) != count:
        return f"{len(joined)} of {count} brokers have joined"
    controllers = [each for each in joined if each.election.state is ElectionState.CONTROLLER]
    node = checks.tree.read(Get(CONTROLLER))
    if len(controllers) != 1 or isinstance(node, Exception):
        return f"there are {len(controllers)} controllers, and the node is {node}"
    number = controllers[0].registration.broker_id
    writes = controllers[0].election.writes
    if decode_controller(node.data).broker_id != number:
        return f"the controller is {number}, and the node says {node.data!r}"
    if writes is None or writes.epoch.number != checks.epoch():
        return f"the controller's epoch is not {checks.epoch()}"
    numbers = {each.registration.broker_id for each in joined}
    for each in joined:
        name, image = f"broker {each.registration.broker_id}", each.store.image
        stat = checks.tree.read(Exists(broker_path(each.registration.broker_id)))
        if stat is None or stat.czxid != each.registration.broker_epoch:
            return f"{name} is not registered as it believes: {stat}"
        if set(image.brokers) != numbers or image.controller_id != number:
            return f"{name} sees {sorted(image.brokers)} and controller {image.controller_id}"
        if each is not controllers[0] and each.election.state is not ElectionState.OTHER:
            return f"{name} is {each.election.state.value}"
    return ""
