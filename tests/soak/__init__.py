"""Long runs with faults: `./dev soak connector --minutes 20`, `./dev soak exactly-once`.

Start reading at connector.py: plan.py has the steps and faults (pure), records.py the checks,
processes.py the processes that are killed. The soak of the exactly-once sink has exactly_once.py,
process_faults.py, copies.py, and traps.py, by which a process dies just between two calls of the
sink.
"""
