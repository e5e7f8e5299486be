#!/usr/bin/env bash
# Makes a virtual environment and installs the locked dependencies and Podline into it. Called by make.
#   PYTHON=python3.11 UV_VERSION=… deployments/setup.sh FOLDER
set -euo pipefail

venv=$1
fail() { echo "podline: error: $*" >&2; exit 1; }

command -v "$PYTHON" >/dev/null || fail "$PYTHON is not there; install Python 3.11, 3.12 or 3.13, or say make PYTHON=/path/to/python"
"$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
  || fail "$PYTHON is $("$PYTHON" -V 2>&1); Podline needs Python 3.11, 3.12 or 3.13; say make PYTHON=/path/to/python"
"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null \
  || fail "$PYTHON has no venv module; install it (Debian: apt install python3-venv)"

echo "Podline: making $venv and installing the locked dependencies (about 4 GB; a minute with a near index)"
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv"
  "$PYTHON" -m venv "$venv" || fail "cannot make $venv"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION" \
  || fail "pip cannot install uv $UV_VERSION; is a package index within reach of pip?"

# uv does not read pip's configuration: hand it the index and the certificates that this machine's pip uses.
configured() { "$venv/bin/python" -m pip config get "global.$1" 2>/dev/null || true; }
index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(configured index-url)}}
certificates=${SSL_CERT_FILE:-${PIP_CERT:-$(configured cert)}}
[ -z "$index" ] || export UV_DEFAULT_INDEX=$index
[ -z "$certificates" ] || export SSL_CERT_FILE=$certificates

# Every module is compiled once, as pip does anyway. Where PYTHONDONTWRITEBYTECODE is set, as in many containers, or the
# folder cannot be written, each process would compile whatever it imports: TensorFlow and Beam take three times as long.
export UV_COMPILE_BYTECODE=1
# pip takes minutes where uv takes seconds, but it knows every way in which an index can be configured.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r requirements.lock \
  || { echo "Podline: uv could not; trying pip, which is slower"
       "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; } \
  || fail "the locked dependencies cannot be installed; the lines above say why"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --editable . \
  || fail "Podline itself cannot be installed; the lines above say why"
echo "Podline: $venv is ready"
