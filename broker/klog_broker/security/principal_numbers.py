"""Small numbers for principals, by which the compiled produce code (the produce kernel) knows what
each principal may write."""

from klog_broker.security.principal import ANONYMOUS, KafkaPrincipal

ANONYMOUS_NUMBER = 0


class PrincipalNumbers:
    """Gives each principal of a broker a number. Loop thread only.

    A principal keeps its number until the broker ends. Only ANONYMOUS and authenticated principals
    get a number, and a broker has few authenticated principals.
    """

    def __init__(self) -> None:
        self._principals = [ANONYMOUS]
        self._numbers = {ANONYMOUS: ANONYMOUS_NUMBER}

    def number(self, principal: KafkaPrincipal) -> int:
        """The principal's number, the next free one for a new principal."""
        found = self._numbers.get(principal)
        if found is None:
            found = self._numbers[principal] = len(self._principals)
            self._principals.append(principal)
        return found

    def principal(self, number: int) -> KafkaPrincipal:
        """The principal with this number."""
        return self._principals[number]
