"""Administration: topics, settings, quotas, groups, log directories and transactions.

May import: everything else in client. Each file deals with one kind of resource.
"""
