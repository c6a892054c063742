"""Prints all generated pages; with ``--check`` only names those that are not current."""

import sys

from tools.docs import (
    alerts,
    apis,
    bounds,
    configuration,
    connections,
    controller,
    dashboard,
    groups,
    metrics,
    options,
    python_api,
    roles,
    transactions,
)
from tools.docs.pages import Pages, print_pages

PAGES: Pages = {
    "docs/api.md": python_api.python_api_page,
    "docs/apis.md": apis.api_page,
    "docs/bounds.md": bounds.bounds_page,
    "docs/configuration.md": configuration.configuration_page,
    "broker/server.properties": configuration.server_properties,
    "docs/connections.md": connections.connections_page,
    "docs/controller.md": controller.controller_page,
    "docs/groups.md": groups.group_page,
    "docs/metrics.md": metrics.metrics_page,
    "docs/options.md": options.options_page,
    "docs/roles.md": roles.role_page,
    "docs/transactions.md": transactions.transaction_page,
    "monitoring/klog-alerts.yml": alerts.alert_rules,
    "monitoring/klog-dashboard.json": dashboard.dashboard,
}

if __name__ == "__main__":
    sys.exit(print_pages(PAGES, sys.argv[1:]))
