#!/usr/bin/env bash
# Makes a TPU VM a worker of Prefect's work pool tpu; run as root at every boot, and safe to run again.
#
# `podline tpu recover` hands it to the node it makes, with what it needs as metadata (settings tpu.spec.*):
#   podline-node, podline-project, podline-zone   which node this is
#   podline-install       what to install: git+URL@REF, or a wheel with tpu.lock beside it: gs://…, https://…, a path
#   podline-prefect-url   PREFECT_API_URL as this machine reaches it
#   podline-prefect-secret  a secret in Secret Manager whose lines are PREFECT_…=value, such as the server's password;
#                         none for a server without one. It goes from there into a file that root alone reads.
# By hand: journalctl -u google-startup-scripts, systemctl status podline-worker, journalctl -u podline-worker
set -euo pipefail
umask 022

prefix=${PREFIX:-} # tests put everything below a folder of their own
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
needed() { attribute "$1" || fail "the machine's metadata has no $1; see tpu.spec in docs/reference/settings.md, and make the node anew"; }

# What follows a bearer token: it stays out of the arguments, which every user of the machine can list.
as_service_account() {
  local token
  token=$(fetch --header "Metadata-Flavor: Google" "$metadata/instance/service-accounts/default/token" |
    sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
  [ -n "$token" ] || fail "the machine has no service account; see docs/how-to/tpu.md"
  fetch --config - "$@" <<<"header = \"Authorization: Bearer $token\""
}

# Puts standard input into a file, if that changes it; whether it did.
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

# Where a file is on this machine; one in a bucket or on the web is fetched first.
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
    *) fail "podline-install is $from; give git+URL@REF, or a wheel as gs://…, https://… or /… with tpu.lock beside it" ;;
  esac
  [ -f "$to" ] && echo "$to"
}

# The wheel or the checkout that is to be installed, as a path; on standard error what is done for it.
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
    say "cannot fetch $from; going on with what is installed"
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
  local -x UV_COMPILE_BYTECODE=1 # as pip does; a run would compile whatever it imports, each time if it may not write here
  # The image's own Python may be too old; uv then fetches one.
  "$uv" venv --quiet --allow-existing --python 3.11 "$venv" || fail "uv cannot make $venv"
  if [ -d "$path" ]; then
    lock=$path/deployments/tpu.lock
  else
    lock=$(file_of "${from%/*}/tpu.lock") || fail "there is no tpu.lock beside $from; put deployments/tpu.lock there"
  fi
  "$uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$lock" &&
    "$uv" pip install --quiet --python "$venv/bin/python" --no-deps "$path" || fail "cannot install $from"
  echo "$from $version" >"$home/installed"
}

# The server's address and its secret, for the worker alone.
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
Description=Podline: takes up the runs of Prefect's pool tpu for node $node
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
EnvironmentFile=$etc/worker.env
Environment=HOME=/root PREFECT_HOME=$home/prefect PODLINE_SETTINGS=$etc/podline.toml
# TensorFlow reaches the TPU through PJRT; both must be said before it is imported.
Environment=PJRT_DEVICE=TPU NEXT_PLUGGABLE_DEVICE_USE_C_API=true TF_PLUGGABLE_DEVICE_LIBRARY_PATH=$libtpu
ExecStart=$venv/bin/prefect worker start --pool tpu --work-queue $node --name $node --type process --limit 1 --install-policy never
Restart=always
RestartSec=10
# SIGTERM reaches a training as well, which saves a checkpoint; a preemption leaves 30 s in all.
TimeoutStopSec=45

[Install]
WantedBy=multi-user.target
END

systemctl daemon-reload
systemctl enable --quiet podline-worker
if [ -n "$changed" ]; then systemctl restart podline-worker; else systemctl start podline-worker; fi
say "the worker of node $node is up"
