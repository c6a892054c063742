"""An earlier commit of klog beside this checkout."""
