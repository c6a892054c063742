"""Administration: topics, settings, quotas, groups, log directories and transactions.

May import: everything else in client. One file for each kind of resource.
"""
