"""Processes for whatever can die: `worker` asks them, `process` starts them, `main` is what runs inside of one."""
