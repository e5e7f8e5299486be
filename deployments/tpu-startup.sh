#!/usr/bin/env bash
# Turns a TPU VM into a worker of Prefect's work pool tpu. Runs as root at every boot; it can be run repeatedly.
#
# `podline tpu recover` creates a node with this script, and with these values as metadata (the settings tpu.spec.*):
#   podline-node, podline-project, podline-zone   the node
#   podline-install       what to install: git+URL@REF, or a wheel next to tpu.lock: gs://…, https://…, a path
#   podline-prefect-url   PREFECT_API_URL as seen from this machine
#   podline-prefect-secret  name of a secret in Secret Manager with lines PREFECT_…=value, such as the server's secret;
#                         missing if the server has none. The lines are written to a file that only root can read.
# To look at it: journalctl -u google-startup-scripts, systemctl status podline-worker, journalctl -u podline-worker
set -euo pipefail
umask 022

prefix=${PREFIX:-} # tests set a folder that contains all files
metadata=${METADATA:-http://metadata.google.internal/computeMetadata/v1}
secrets=${SECRETS:-https://secretmanager.googleapis.com/v1}
storage=${STORAGE:-https://storage.googleapis.com/storage/v1}
uv_version=0.13.8
home=$prefix/opt/podline
etc=$prefix/etc/podline
unit=$prefix/etc/systemd/system/podline-worker.service
venv=$home/venv

say() { echo "podline: $*"; }
fail() { echo "podline: error: $*" >&2; exit 1; }
fetch() { curl --silent --show-error --fail --location --retry 5 --retry-connrefused --max-time 600 "$@"; }

attribute() { fetch --header "Metadata-Flavor: Google" "$metadata/instance/attributes/$1" 2>/dev/null; }
needed() { attribute "$1" || fail "the machine's metadata has no $1; see tpu.spec in docs/reference/settings.md, and create the node again"; }

# Fetch with a bearer token. It is not an argument, since every user of the machine can list arguments.
as_service_account() {
  local token
  token=$(fetch --header "Metadata-Flavor: Google" "$metadata/instance/service-accounts/default/token" |
    sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
  [ -n "$token" ] || fail "the machine has no service account; see docs/how-to/tpu.md"
  fetch --config - "$@" <<<"header = \"Authorization: Bearer $token\""
}

# Write standard input to a file if the content differs; return whether it did.
put() {
  local file=$1 mode=$2 new
  new=$(mktemp "$(dirname "$file")/.new.XXXXXX")
  chmod "$mode" "$new"
  cat >"$new"
  if cmp --silent "$new" "$file"; then
    rm "$new"
    return 1
  fi
  mv "$new" "$file"
}

# Print the local path of a file; download it from a bucket or from the web first.
file_of() {
  local from=$1 to=$home/${1##*/}
  case $from in
    gs://*)
      local bucket=${from#gs://} object
      object=${bucket#*/} bucket=${bucket%%/*}
      as_service_account --output "$to" "$storage/b/$bucket/o/${object//\//%2F}?alt=media" || return
      ;;
    https://*) fetch --output "$to" "$from" || return ;;
    /*) to=$from ;;
    *) fail "podline-install is $from; give git+URL@REF, or a wheel as gs://…, https://… or /… next to tpu.lock" ;;
  esac
  [ -f "$to" ] && echo "$to"
}

# Print the path of the wheel or the checkout to install; messages go to standard error.
source_of() {
  local from=$1 to=$home/source
  case $from in
    git+*@*)
      local url=${from#git+} ref=${from##*@}
      url=${url%@*}
      [ -d "$to/.git" ] || git clone --quiet "$url" "$to" >&2 || return
      git -C "$to" fetch --quiet origin "$ref" >&2 || return
      git -C "$to" checkout --quiet --force --detach FETCH_HEAD >&2 || return
      echo "$to"
      ;;
    *) file_of "$from" ;;
  esac
}

install_podline() {
  local from=$1 path version lock
  if ! path=$(source_of "$from"); then
    [ -f "$home/installed" ] || fail "cannot fetch $from"
    say "cannot fetch $from; the installed version is kept"
    return 1
  fi
  if [ -d "$path" ]; then version=$(git -C "$path" rev-parse HEAD); else version=$(sha256sum "$path" | cut -d' ' -f1); fi
  if [ "$(cat "$home/installed" 2>/dev/null)" = "$from $version" ]; then
    return 1
  fi
  say "installing $from ($version); this takes minutes"
  rm -f "$home/installed"
  python3 -m pip install --quiet --upgrade --target "$home/uv" "uv==$uv_version" || fail "pip cannot install uv"
  local uv=$home/uv/bin/uv
  local -x UV_COMPILE_BYTECODE=1 # like pip; otherwise each run may compile all modules that it imports
  # The image's Python may be too old; uv then downloads one.
  "$uv" venv --quiet --allow-existing --python 3.11 "$venv" || fail "uv cannot make $venv"
  if [ -d "$path" ]; then
    lock=$path/deployments/tpu.lock
  else
    lock=$(file_of "${from%/*}/tpu.lock") || fail "there is no tpu.lock next to $from; put deployments/tpu.lock there"
  fi
  "$uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$lock" &&
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps "$path" || fail "cannot install $from"
  echo "$from $version" >"$home/installed"
}

# Print the variables of the worker: the server's address and its secret.
worker_environment() {
  local secret=$1 project=$2 url=$3 lines=""
  if [ -n "$secret" ]; then
    lines=$(as_service_account "$secrets/projects/$project/secrets/$secret/versions/latest:access" |
      sed -n 's/.*"data" *: *"\([^"]*\)".*/\1/p' | base64 --decode) || fail "cannot read the secret $secret"
    if [ -z "$lines" ] || grep -qvE '^PREFECT_[A-Z_]+=.+$' <<<"$lines"; then
      fail "the secret $secret: each of its lines must be PREFECT_…=value, like PREFECT_API_AUTH_STRING=user:password"
    fi
  fi
  echo "PREFECT_API_URL=$url"
  [ -z "$lines" ] || echo "$lines"
}

node=$(needed podline-node)
project=$(needed podline-project)
zone=$(needed podline-zone)
from=$(needed podline-install)
url=$(needed podline-prefect-url)
secret=$(attribute podline-prefect-secret || true)
mkdir -p "$home" "$etc" "$(dirname "$unit")"

changed=""
if install_podline "$from"; then changed=yes; fi

environment=$(worker_environment "$secret" "$project" "$url")
if put "$etc/worker.env" 600 <<<"$environment"; then changed=yes; fi

if put "$etc/podline.toml" 644 <<END; then changed=yes; fi
# Written at every boot by the start-up script.
[tpu]
node = "$node"
[tpu.api]
project = "$project"
zone = "$zone"
[tpu.machine]
END

libtpu=$(find "$venv" -name libtpu.so -print -quit)
[ -n "$libtpu" ] || fail "there is no libtpu.so below $venv; is the extra tpu installed?"
if put "$unit" 644 <<END; then changed=yes; fi
[Unit]
Description=Podline: worker of Prefect's pool tpu for node $node
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile=$etc/worker.env
Environment=HOME=/root PREFECT_HOME=$home/prefect PODLINE_SETTINGS=$etc/podline.toml
# TensorFlow uses the TPU through PJRT; these variables must be set before its import.
Environment=PJRT_DEVICE=TPU NEXT_PLUGGABLE_DEVICE_USE_C_API=true TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$libtpu
ExecStart=$venv/bin/prefect worker start --pool tpu --work-queue $node --name $node --type process --limit 1 --install-policy never
Restart=always
RestartSec=10
# SIGTERM also reaches a training, which saves a checkpoint; after a preemption 30 s remain.
TimeoutStopSec=45

[Install]
WantedBy=multi-user.target
END

systemctl daemon-reload
systemctl enable --quiet podline-worker
if [ -n "$changed" ]; then systemctl restart podline-worker; else systemctl start podline-worker; fi
say "the worker of node $node runs"
