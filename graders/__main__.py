"""``python -m graders``."""

import gc
import signal
import sys

# jsonschema builds 38 parsers for formats that no notebook has when it finds this package: half of the time to start.
sys.modules.setdefault("rfc3987_syntax", None)

NO_SANDBOX = {"-h", "--help", "--no-sandbox", "--scheduler"}
pressed: list[int] = []  # Ctrl-C while modules load


def _press(number: int, _: object) -> None:
    """Remember it: a module that is interrupted may raise something else, or nothing."""
    pressed.append(number)
    raise KeyboardInterrupt


def _load_and_run() -> int:
    """Load the command line and run it; its exit code."""
    from graders.engine import sandbox

    try:
        if sys.argv[1:2] in (["grade"], ["sample"]) and not NO_SANDBOX & set(sys.argv):
            sandbox.start_early()  # it takes as long as the imports that follow
        from graders.cli import main

        gc.freeze()
        gc.enable()
        if pressed:
            raise KeyboardInterrupt
        if signal.getsignal(signal.SIGINT) is _press:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return main()
    finally:
        sandbox.end_early()
        gc.freeze()  # what is there stays: the process ends


if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking through it for garbage takes a fifth of the time to start
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: a job in the background
        signal.signal(signal.SIGINT, _press)
    try:
        code = _load_and_run()
    except BaseException as error:
        if not pressed and not isinstance(error, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one says nothing new
        print("\ngraders: stopped before it began", file=sys.stderr)
        code = 130
    sys.exit(code)
