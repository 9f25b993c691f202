"""``python -m graders coach | study`` where the course was downloaded: this file is ``graders/__main__.py`` there."""

import argparse
import sys
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m graders",
        description="Judge your own answers, and see what you have done.",
        epilog="exit codes: 0 all checks hold, 1 some do not, 2 usage error",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    text = "judge the answers in a notebook of yours, and name the mistakes"
    sub = commands.add_parser("coach", help=text, description=text)
    sub.add_argument("notebook", metavar="NOTEBOOK", type=Path, help="exercises/01_relu/relu.ipynb, or a chapter")
    sub.add_argument("task", metavar="TASK", nargs="?", default="", help="judge only this one: Square")
    sub.add_argument("--json", action="store_true", help="print the verdicts as data")
    sub.add_argument("--timeout", type=float, metavar="S", help="time limit for all of it in seconds (default 120)")
    text = "print what you have done and tried, and what comes next"
    sub = commands.add_parser("study", help=text, description=text)
    sub.add_argument("--json", action="store_true", help="print it as data")
    sub.add_argument("--forget", action="store_true", help="delete the file that holds it")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    options = parser().parse_args(arguments)
    from graders.coach import command  # after the arguments: it takes torch along

    if options.command == "study":
        return command.tell(options.json, options.forget)
    return command.coach(options.notebook, options.task, options.json, options.timeout)


if __name__ == "__main__":
    sys.exit(main())
