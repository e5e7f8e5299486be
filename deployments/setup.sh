#!/usr/bin/env bash
# Creates a virtual environment; installs the packages of a lock file and Podline: the given wheel, or this checkout.
#   [PYTHON=/path/to/python] deployments/setup.sh FOLDER LOCK [WHEEL]
set -euo pipefail

venv=$1 lock=$2
if [ $# -gt 2 ]; then what=("$3"); else what=(--editable .); fi
uv_version=0.13.8
fail() { echo "podline: error: $*" >&2; exit 1; }
works() { "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# Print the first supported Python: $PYTHON, or one of the usual names; 3.11 first, since most tests ran on it.
find_python() {
  local candidate candidates=(python3.11 python3.12 python3.13 python3)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if works "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "got ${PYTHON:-python3.11, python3.12, python3.13 and python3}, expected one that is Python 3.11, 3.12 or 3.13" \
    "with its venv module (Debian: apt install python3-venv); install one, or set PYTHON=/path/to/python"
}

echo "Podline: installing $lock into $venv (about 4 GB, 8 GB with a GPU's libraries; a minute with a fast package index)"
# The first line of pip's script has the path of an interpreter, which may no longer exist.
if ! works "$venv/bin/python" || ! "$venv/bin/pip" --version >/dev/null 2>&1; then
  python=$(find_python)
  ! compgen -G "$venv/*" >/dev/null || [ -f "$venv/pyvenv.cfg" ] || [ -f "$venv/.ready" ] ||
    fail "got $venv, a folder with files and no virtual environment; name a new folder"
  rm -rf "$venv"
  "$python" -m venv "$venv" || fail "cannot make $venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version" \
  || fail "pip cannot install uv $uv_version; can pip reach a package index?"

# uv does not read pip's configuration: pass it the index and the certificates of this machine's pip.
configured() { "$venv/bin/python" -m pip config get "global.$1" 2>/dev/null || true; }
index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(configured index-url)}}
certificates=${SSL_CERT_FILE:-${PIP_CERT:-$(configured cert)}}
[ -z "$index" ] || export UV_DEFAULT_INDEX=$index
[ -z "$certificates" ] || export SSL_CERT_FILE=$certificates

# Compile every module once, like pip. Otherwise each process would compile all modules that it imports, if the folder is
# read only or PYTHONDONTWRITEBYTECODE is set, as in many containers: TensorFlow and Beam start three times slower.
export UV_COMPILE_BYTECODE=1
# pip is the fallback: it takes minutes instead of seconds, but supports every configuration of an index.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$lock" \
  || { echo "Podline: uv failed; trying pip, which is slower"
       "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"; } \
  || fail "the locked dependencies cannot be installed; the lines above have the cause"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps "${what[@]}" \
  || fail "Podline itself cannot be installed; the lines above have the cause"
echo "Podline: $venv is ready"
