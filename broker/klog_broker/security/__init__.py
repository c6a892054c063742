"""Who asks: principals. What they may do, and how they prove who they are, come here too.

May import: runtime, config and pyspark_klog; neither network nor handlers, which both import this.
"""
