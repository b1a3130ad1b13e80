#!/bin/sh
# Generates the Go code of api/ from its schema, after linting it. The plugins
# are the tools pinned in go.mod; buf and the imported google schemas come from
# npm, pinned here, into a temporary folder.
#   generate.sh                  write the generated code
#   generate.sh check            fail if the committed code is not what the schema gives
#   generate.sh breaking FOLDER  fail if a caller of the schema in FOLDER would break
set -eu
buf_version=1.75.0
protos_version=5.0.0

root=$(cd "$(dirname "$0")/.." && pwd)
command -v npm >/dev/null || {
	echo "generate: npm is needed to get buf $buf_version; install Node.js and try again" >&2
	exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work/npm" \
	"@bufbuild/buf@$buf_version" "google-proto-files@$protos_version" >&2
protos=$work/npm/node_modules/google-proto-files/google
mkdir -p "$work/google/google/api" "$work/google/google/rpc" "$work/bin"
cp "$protos/api/annotations.proto" "$protos/api/http.proto" "$work/google/google/api/"
cp "$protos/rpc/status.proto" "$work/google/google/rpc/"
cp "$root/tools/buf.yaml" "$root/tools/buf.gen.yaml" "$work/"
mkdir "$work/api"
(cd "$root/api" && find . -name '*.proto' -exec tar cf - {} +) | tar xf - -C "$work/api"
(cd "$root" && go build -o "$work/bin/" tool)
PATH=$work/bin:$work/npm/node_modules/.bin:$PATH
cd "$work"
buf lint

case ${1-} in
"")
	buf generate api
	(cd "$root/api" && find . -name '*.pb.go' -o -name '*.connect.go' | xargs rm -f)
	cp -R out/. "$root/api/"
	;;
check)
	buf generate api
	for f in $(cd "$root/api" && find . -name '*.pb.go' -o -name '*.connect.go') $(cd out && find . -type f); do
		cmp -s "out/$f" "$root/api/$f" || {
			echo "generate: api/$f is not what the schema gives; run make generate" >&2
			exit 1
		}
	done
	;;
breaking)
	mkdir -p "$work/old"
	cp -R "$work/google" "$work/buf.yaml" "$work/old/"
	cp -R "$2" "$work/old/api"
	buf breaking --against "$work/old"
	;;
*)
	echo "usage: generate.sh [check | breaking FOLDER]" >&2
	exit 1
	;;
esac
