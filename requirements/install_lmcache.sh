#!/usr/bin/env bash
# LMCache in an environment of its own: its dependencies conflict with this project's. By default in .lmcache
# beside this folder, where its adapters look for it; elsewhere, set RANKFAULT_LMCACHE_PYTHON to its python.
#
#     requirements/install_lmcache.sh [FOLDER]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/../.lmcache}
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --no-deps -r "$here/lmcache.txt"
LMCACHE_LOG_LEVEL=ERROR "$folder/bin/python" -c "
from importlib.metadata import version
import lmcache.v1.storage_backend.local_disk_backend, torch
print('lmcache', version('lmcache'), 'with torch', torch.__version__)"
