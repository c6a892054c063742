"""Long runs with faults: `./dev soak connector --minutes 20`, `./dev soak exactly-once`.

Start reading at connector.py: plan.py has what is done when (pure), records.py what must hold,
processes.py whom it is done to. Of the exactly-once sink: exactly_once.py, kills.py, copies.py, and
traps.py, by which a process dies just between two calls of the sink.
"""
