"""Options, tables, progress bars and error output that klog's commands share."""
