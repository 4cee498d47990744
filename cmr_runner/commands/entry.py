"""cmr-run's first step: ready for signals and closed streams before the imports, which take most of a second."""

from cmr_runner.commands.signals import leave_on_signals


def main() -> None:
    leave_on_signals()
    from cmr_runner.commands.streams import mend

    mend()
    from cmr_runner.commands import run

    run.main()
