#!/bin/sh
# Runs every fuzz target of the module, one after the other, for the given time
# each: fuzz.sh 20s. A finding is written to testdata/fuzz beside the target and
# is a test from then on.
set -eu
time=${1:?usage: fuzz.sh TIME}
go=${GO:-go}
failed=
for file in $(git ls-files '*_test.go' | xargs grep -l '^func Fuzz'); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		echo "== $(dirname "$file") $target"
		"$go" test "./$(dirname "$file")" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x ||
			failed="$failed $(dirname "$file").$target"
	done
done
[ -z "$failed" ] || {
	echo "fuzz: failed:$failed" >&2
	exit 1
}
