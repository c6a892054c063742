"""Long runs with faults: `./dev soak connector --minutes 20`. Start reading at connector.py.

plan.py has what is done when (pure), records.py what must hold, processes.py whom it is done to.
"""
