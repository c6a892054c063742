"""The exceptions that stop or change the controller's present work."""

from pyspark_klog.errors import KlogError


class ControllerMoved(KlogError):
    """This broker is no longer the controller, so a write to ZooKeeper was not carried out."""


class BrokersChanged(KlogError):
    """A broker has registered since the controller read the registrations, so new states of
    partitions (leaders and ISRs) were not written.

    The new states may rely on the broker's earlier registration.
    """


class ControllerStateOutdated(KlogError):
    """ZooKeeper has other data than the controller expects, or failed a request.

    The controller must read everything from ZooKeeper again.
    """


class WriteDenied(ControllerStateOutdated):
    """The access list (ACL) of a znode forbids a read or write, so nothing was written; the log
    names the znode.

    A caller that can work without the znode catches this error and continues. A request from a
    broker fails with UNKNOWN_SERVER_ERROR.
    """


class WriteRefused(ControllerStateOutdated):
    """ZooKeeper would never accept this write, most likely for its size; nothing was written.

    The callers that create a topic or add partitions catch this error and answer INVALID_REQUEST.
    """
