"""The printers of generated pages, a module for each page: ``python -m tools.docs`` runs them."""
