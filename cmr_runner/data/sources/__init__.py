"""Where files can come from, one source per module; `cmr_runner.data.store` asks them in turn and checks what comes."""
