#!/bin/sh
# Installs what the tests want and the machine lacks. Everything else comes with
# Go modules. Without root or apt-get it says what is missing and goes on: the
# test that needs it says that it was skipped.
set -eu

command -v go >/dev/null || {
	echo "setup: Go is needed, version $(sed -n 's/^go //p' go.mod) or later: https://go.dev/dl" >&2
	exit 1
}

missing=
command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
	command -v google-chrome >/dev/null || missing="$missing chromium"
# The race detector links with the C compiler.
command -v cc >/dev/null || command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "setup: not installed:$missing; install them, or run make setup as root on Debian" >&2
	exit 0
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
for attempt in 1 2 3; do
	# shellcheck disable=SC2086 # one word per package
	if apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
		exit 0
	fi
	echo "setup: attempt $attempt failed" >&2
done
echo "setup: could not install$missing; the tests that need them are skipped" >&2
