"""An authorizer with rules that a test changes."""

from klog_broker.security.acls import AclOperation, AclResourceType
from klog_broker.security.principal import KafkaPrincipal

_Denied = tuple[AclOperation | None, AclResourceType, str, str | None]


class Rules:
    """Allows everything that the test has not denied. Counts the questions."""

    def __init__(self) -> None:
        self.version = 0
        self.questions = 0
        self._denied: set[_Denied] = set()

    def deny(
        self,
        operation: AclOperation | None,
        resource_type: AclResourceType,
        name: str,
        user: str | None = None,
    ) -> None:
        """Deny an operation, or all, on the resource, to one user or to all."""
        self._denied.add((operation, resource_type, name, user))
        self.version += 1

    def allow_everything(self) -> None:
        """Remove all rules."""
        self._denied.clear()
        self.version += 1

    def is_allowed(
        self,
        principal: KafkaPrincipal,
        host: str | None,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        self.questions += 1
        return not any(
            (each, resource_type, name, user) in self._denied
            for each in (operation, None)
            for user in (principal.name, None)
        )
