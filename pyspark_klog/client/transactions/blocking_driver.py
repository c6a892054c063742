"""The blocking driver of a `TransactionManager`: sends its steps, and hands it the responses.

A step is one request of a transaction.
"""

from pyspark_klog.client.cluster.blocking_client import BlockingClient
from pyspark_klog.client.errors import ClientError, TimedOut, is_retriable
from pyspark_klog.client.transactions.manager import TransactionManager
from pyspark_klog.client.transactions.steps import FindCoordinator, PendingStep
from pyspark_klog.client.transport.connection import Call
from pyspark_klog.errors import KlogError
from pyspark_klog.protocol.message import Response

TRANSACTION_VERSION = "transaction.version"
"""The feature whose level decides which requests a transaction uses (KIP-890)."""
_COORDINATORS = 2
"""One call of `carry_out` usually looks up at most two coordinators: that of the transactional id,
and that of one group. Further look-ups suggest that a look-up has failed, or that a broker named a
wrong coordinator."""


def carry_out(
    client: BlockingClient, manager: TransactionManager, deadline_ms: int, bound: str | None
) -> None:
    """Send the requests of a transaction (the manager's steps) until all are answered.

    ``bound`` is the name of the setting that limits the time, for log messages; None if there is no
    such setting.

    :raises TimedOut: at the deadline; the manager keeps its steps, and the next call continues
    :raises TransactionMustAbort, ProducerUnusable: if an error ends the transaction or the producer
    """
    first = manager.next_step()
    if first is None:
        return
    trouble = client.retries.failures_of(first.step.value, bound)
    looks = 0
    while (step := manager.next_step()) is not None:
        if isinstance(step, FindCoordinator):
            looks += 1
            if looks > _COORDINATORS:
                client.mark_doubtful()
        wait_ms = step.not_before_ms - client.now_ms()
        if wait_ms > 0:
            if step.not_before_ms >= deadline_ms:
                raise TimedOut(f"{step.step.value} did not succeed in time: {step.last_error}")
            client.sleep_ms(wait_ms)
        try:
            with client.retries.attribute_to(trouble, lambda: deadline_ms):
                response = _send_step(client, manager, step, deadline_ms)
        except TimedOut as error:
            manager.on_lost(step, error, client.now_ms())
            raise
        except KlogError as error:
            if is_retriable(error):
                manager.on_lost(step, error, client.now_ms())
                client.retries.on_failure(trouble, error, deadline_ms)
            else:
                manager.on_error(error)
        else:
            failures = step.failures
            manager.on_response(step, response, client.now_ms())
            if step.failures > failures:
                client.retries.on_failure(trouble, ClientError(step.last_error), deadline_ms)
        if manager.error is not None:
            raise manager.error
    client.retries.on_success(trouble)


def _send_step(
    client: BlockingClient, manager: TransactionManager, step: PendingStep, deadline_ms: int
) -> Response:
    if step.coordinator is None:
        link = client.link_to_any(deadline_ms)
    else:
        link = client.links.link_to(manager.address_of(step.coordinator), deadline_ms)
    version = link.connection.version(step.response.api_key, *step.versions)
    call: Call[Response] = client.send(link, step.request, step.response, version)
    return client.wait(call, deadline_ms)


def transaction_version(client: BlockingClient) -> tuple[int, int]:
    """The newest epoch of finalized features (KIP-584) that a broker has sent over one of this
    client's open connections, and the transaction.version of that epoch; (-1, 0) without such an
    epoch."""
    newest = (-1, 0)
    for link in client.links:
        versions = link.connection.versions
        if versions is not None and versions.features_epoch > newest[0]:
            newest = versions.features_epoch, versions.features.get(TRANSACTION_VERSION, 0)
    return newest
