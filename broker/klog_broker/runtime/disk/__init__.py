"""Disk access: files, which may outnumber the file descriptors, mappings, locks and directories."""
