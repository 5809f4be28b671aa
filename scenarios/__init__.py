"""System, workload, fault menu and reference, one module each."""
