#!/bin/sh
# Print the first Python 3.11, 3.12 or 3.13 that can make a virtual environment, or say in one line what to do.
# Usage: find_python.sh [CANDIDATE...]
[ $# -gt 0 ] || set -- python3.13 python3.12 python3.11 python3 python
seen= without_venv=
for python in "$@"; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case $version in
        3.11 | 3.12 | 3.13)
            if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
                command -v "$python"
                exit 0
            fi
            without_venv=${without_venv:-$version}
            ;;
        *) seen="$seen, $python is $version" ;;
    esac
done
if [ -n "$without_venv" ]; then
    echo "make: Python $without_venv is here without its venv module." \
        "On Debian or Ubuntu: apt-get install python$without_venv-venv. Or name another: make PYTHON=/path/to/python3" >&2
else
    echo "make: found no Python 3.11, 3.12 or 3.13${seen:+ (${seen#, })}." \
        "Install one from your system or python.org, or name it: make PYTHON=/path/to/python3" >&2
fi
exit 1
