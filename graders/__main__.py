"""``python -m graders``."""

import gc
import sys

from graders.engine import sandbox

# jsonschema builds 38 parsers for formats that no notebook has when it finds this package: half of the time to start.
sys.modules.setdefault("rfc3987_syntax", None)

if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking through it for garbage takes a fifth of the time to start
    if sys.argv[1:2] in (["grade"], ["sample"]) and not {"-h", "--help", "--no-sandbox", "--scheduler"} & set(sys.argv):
        sandbox.start_early()  # it takes as long as the imports that follow
    from graders.cli import main

    gc.freeze()
    gc.enable()
    try:
        code = main()
    finally:
        sandbox.end_early()
        gc.freeze()  # for the same reason: the process ends
    sys.exit(code)
