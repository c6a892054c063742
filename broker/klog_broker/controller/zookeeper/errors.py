"""The errors of the controller."""

from pyspark_klog.errors import KlogError


class ControllerMoved(KlogError):
    """This broker is no longer the controller, and nothing was written."""


class BrokersChanged(KlogError):
    """A broker has registered since the registrations were read, so nothing was written.

    The state to write may rely on the broker's earlier registration.
    """


class ControllerStateOutdated(KlogError):
    """ZooKeeper has other data than the controller expects, or failed a request.

    The controller must read everything again.
    """


class WriteDenied(ControllerStateOutdated):
    """An access list forbids a read or write, so nothing was written; the log names the znode.

    A caller that can work without the znode catches this error and continues. A request from a
    broker fails with UNKNOWN_SERVER_ERROR.
    """


class WriteRefused(ControllerStateOutdated):
    """ZooKeeper would never accept this write, most likely for its size; nothing was written.

    Callers that carry out a client's request catch this error and answer the client.
    """
